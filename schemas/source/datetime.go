package source

import "math"

// PositiveInfinity and NegativeInfinity are what "infinity" and "-infinity"
// of a timestamp become, in µs: the last and the first instant of the years
// 1 to 9999, which every reader opens. A date becomes their day; a nanosecond
// timestamp, which cannot hold them, the largest and smallest it can.
const (
	PositiveInfinity int64 = 253402300799999999 // 9999-12-31T23:59:59.999999
	NegativeInfinity int64 = -62135596800000000 // 0001-01-01T00:00:00
	microsPerDay     int64 = 24 * 3600 * 1000000
	// What Debezium sends at or after endDay (294247-01-10, where µs leave 64
	// bits), before 4714 BC, or as a date after year 5874897, lies outside
	// every database's range: it stands for infinity.
	endDay         int64 = 106751991
	maxSourceDay   int64 = 2145042905 // 5874897-12-31
	minSourceDay   int64 = -2440588   // -4713-11-24
	positiveInfDay int64 = 2932896    // 9999-12-31
	negativeInfDay int64 = -719162    // 0001-01-01
)

// daysOf is the day of a proleptic Gregorian date, 1970-01-01 being 0.
func daysOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	if year < 0 && year%400 != 0 {
		era--
	}
	yoe := year - era*400
	mp := (month + 9) % 12
	doy := (153*mp+2)/5 + day - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

func leap(y int64) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

var monthDays = [...]int64{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func two(s []byte, i int) int64 {
	if i+2 > len(s) || s[i]-'0' > 9 || s[i+1]-'0' > 9 {
		return -1
	}
	return int64(s[i]-'0')*10 + int64(s[i+1]-'0')
}

// scanDate reads yyyy-mm-dd at the start of s; a sign allows up to nine
// digits of year. zero says that it was MySQL's 0000-00-00.
func scanDate(s []byte) (days int64, n int, zero bool, f fail) {
	i := 0
	sign := int64(1)
	limit := 4
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		if s[i] == '-' {
			sign = -1
		}
		i++
		limit = 9
	}
	start := i
	var year int64
	for i < len(s) && s[i]-'0' <= 9 && i-start < limit {
		year = year*10 + int64(s[i]-'0')
		i++
	}
	if i-start < 4 || i >= len(s) || s[i] != '-' {
		return 0, 0, false, badText
	}
	month := two(s, i+1)
	if month < 0 || i+3 >= len(s) || s[i+3] != '-' {
		return 0, 0, false, badText
	}
	day := two(s, i+4)
	if year == 0 && month == 0 && day == 0 && limit == 4 {
		return 0, i + 6, true, okay
	}
	year *= sign
	if month < 1 || month > 12 || day < 1 || day > monthDays[month] || month == 2 && day == 29 && !leap(year) {
		return 0, 0, false, badText
	}
	return daysOf(year, month, day), i + 6, false, okay
}

// scanClock reads hh:mm[:ss[.fraction]] at the start of s, to nanoseconds of
// the day; digits beyond nanoseconds must be zeros. 24:00:00 is refused.
func scanClock(s []byte) (nanos int64, n int, f fail) {
	h, m := two(s, 0), two(s, 3)
	if h < 0 || h > 23 || m < 0 || m > 59 || s[2] != ':' {
		return 0, 0, badText
	}
	i := 5
	sec, frac := int64(0), int64(0)
	if i < len(s) && s[i] == ':' {
		if sec = two(s, i+1); sec < 0 || sec > 59 {
			return 0, 0, badText
		}
		i += 3
		if i < len(s) && s[i] == '.' {
			i++
			start := i
			for ; i < len(s) && s[i]-'0' <= 9; i++ {
				if i-start < 9 {
					frac = frac*10 + int64(s[i]-'0')
				} else if s[i] != '0' {
					return 0, 0, tooFine
				}
			}
			if i == start {
				return 0, 0, badText
			}
			for k := i - start; k < 9; k++ {
				frac *= 10
			}
		}
	}
	return (h*3600+m*60+sec)*1e9 + frac, i, okay
}

// scanOffset reads all of s as Z, ±hh, ±hhmm or ±hh:mm, in seconds.
func scanOffset(s []byte) (seconds int64, f fail) {
	if len(s) == 1 && s[0]|0x20 == 'z' {
		return 0, okay
	}
	if len(s) < 3 || s[0] != '+' && s[0] != '-' {
		return 0, badText
	}
	h, m := two(s, 1), int64(0)
	switch {
	case len(s) == 5:
		m = two(s, 3)
	case len(s) == 6 && s[3] == ':':
		m = two(s, 4)
	case len(s) != 3:
		return 0, badText
	}
	if h < 0 || h > 18 || m < 0 || m > 59 {
		return 0, badText
	}
	seconds = h*3600 + m*60
	if s[0] == '-' {
		seconds = -seconds
	}
	return seconds, okay
}

// zone says which offsets a timestamp's text may have.
type zone uint8

const (
	zoneNeeded zone = iota // timestamptz
	zoneUTC                // timestamp: none, or Z
)

// moment is a timestamp's text, read: days and nanoseconds of the day in UTC.
type moment struct {
	days, nanos int64
	infinite    int8 // +1, −1: infinity
	zero        bool // MySQL's zero date: no value
}

func parseMoment(s []byte, z zone) (m moment, f fail) {
	switch string(s) {
	case "infinity", "+infinity", "Infinity":
		return moment{infinite: 1}, okay
	case "-infinity", "-Infinity":
		return moment{infinite: -1}, okay
	}
	days, n, zero, f := scanDate(s)
	if f != okay {
		return m, f
	}
	m.days, m.zero = days, zero
	s = s[n:]
	if len(s) == 0 {
		if zero {
			return m, okay
		}
		return m, badText
	}
	if s[0]|0x20 != 't' && s[0] != ' ' {
		return m, badText
	}
	nanos, n, f := scanClock(s[1:])
	if f != okay {
		return m, f
	}
	m.nanos = nanos
	s = s[1+n:]
	if len(s) == 0 {
		if z == zoneNeeded && !zero {
			return m, badZone
		}
		return m, okay
	}
	offset, f := scanOffset(s)
	if f != okay {
		return m, f
	}
	if z == zoneUTC && len(s) > 1 {
		return m, badZone
	}
	if m.nanos -= offset * 1e9; m.nanos < 0 {
		m.nanos += microsPerDay * 1000
		m.days--
	} else if m.nanos >= microsPerDay*1000 {
		m.nanos -= microsPerDay * 1000
		m.days++
	}
	return m, okay
}

// micros is the moment in µs; floor drops what is finer, else it is refused.
func (m moment) micros(floor bool) (int64, fail) {
	switch {
	case m.infinite > 0 || m.days >= endDay:
		return PositiveInfinity, okay
	case m.infinite < 0 || m.days < minSourceDay:
		return NegativeInfinity, okay
	case !floor && m.nanos%1000 != 0:
		return 0, tooFine
	}
	return m.days*microsPerDay + m.nanos/1000, okay
}

// nanosOf is the moment in ns.
func (m moment) nanosOf() (int64, fail) {
	switch {
	case m.infinite > 0 || m.days >= endDay:
		return math.MaxInt64, okay
	case m.infinite < 0 || m.days < minSourceDay:
		return math.MinInt64, okay
	case m.days > 106751 || m.days < -106751: // |days| × 86400e9 nears 2^63
		return 0, outOfRange
	}
	return m.days*microsPerDay*1000 + m.nanos, okay
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}
