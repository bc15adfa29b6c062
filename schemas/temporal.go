package schemas

import "strings"

// Units of time.
const (
	MicrosPerSecond = 1_000_000
	MicrosPerHour   = 3600 * MicrosPerSecond
	MicrosPerDay    = 24 * MicrosPerHour
	NanosPerMicro   = 1000
)

// FloorDiv rounds towards minus infinity; b > 0.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// CivilDate is the date of a day since 1970-01-01 in the proleptic Gregorian
// calendar. Any day that an int64 of microseconds reaches is right.
func CivilDate(day int64) (year int64, month, dayOfMonth int) {
	// Howard Hinnant's days algorithm: years start in March, eras have 400.
	day += 719468
	era := FloorDiv(day, 146097)
	doe := day - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	dayOfMonth = int(doy - (153*mp+2)/5 + 1)
	month = int(mp + 3)
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, dayOfMonth
}

// DayOf is the day since 1970-01-01 of a date; ok is false when there is no
// such date.
func DayOf(year int64, month, dayOfMonth int) (day int64, ok bool) {
	if month < 1 || month > 12 || dayOfMonth < 1 || dayOfMonth > daysIn(year, month) {
		return 0, false
	}
	y, m := year, int64(month)
	if m <= 2 {
		y--
		m += 12
	}
	era := FloorDiv(y, 400)
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + int64(dayOfMonth) - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468, true
}

func daysIn(year int64, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

func appendDigits(dst []byte, v int64, width int) []byte {
	var b [20]byte
	i := len(b)
	for v > 0 || len(b)-i < width {
		i--
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, b[i:]...)
}

// AppendDate appends a day as ISO 8601: years beyond 0 to 9999 have a sign.
func AppendDate(dst []byte, day int64) []byte {
	y, m, d := CivilDate(day)
	switch {
	case y < 0:
		dst = append(dst, '-')
		y = -y
	case y > 9999:
		dst = append(dst, '+')
	}
	dst = appendDigits(dst, y, 4)
	dst = append(dst, '-')
	dst = appendDigits(dst, int64(m), 2)
	dst = append(dst, '-')
	return appendDigits(dst, int64(d), 2)
}

// appendTimeOfDay appends units of a day; digits is 6 for micros, 9 for nanos.
func appendTimeOfDay(dst []byte, v int64, digits int) []byte {
	unit := int64(MicrosPerSecond)
	if digits == 9 {
		unit *= NanosPerMicro
	}
	s, fraction := v/unit, v%unit
	dst = appendDigits(dst, s/3600, 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, s/60%60, 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, s%60, 2)
	dst = append(dst, '.')
	return appendDigits(dst, fraction, digits)
}

func appendTimestamp(dst []byte, v int64, digits int, utc bool) []byte {
	day := int64(MicrosPerDay)
	if digits == 9 {
		day *= NanosPerMicro
	}
	d := FloorDiv(v, day)
	dst = AppendDate(dst, d)
	dst = append(dst, 'T')
	dst = appendTimeOfDay(dst, v-d*day, digits)
	if utc {
		dst = append(dst, "+00:00"...)
	}
	return dst
}

// cutNumber reads width digits at the start of s.
func cutNumber(s string, width int) (v int64, rest string, ok bool) {
	if len(s) < width {
		return 0, "", false
	}
	for i := range width {
		if s[i] < '0' || s[i] > '9' {
			return 0, "", false
		}
		v = v*10 + int64(s[i]-'0')
	}
	return v, s[width:], true
}

func cutDate(s string) (day int64, rest string, ok bool) {
	negative, width := false, 4
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
		if width = strings.IndexByte(s, '-'); width < 4 || width > 7 {
			return 0, "", false
		}
	}
	y, s, ok := cutNumber(s, width)
	if !ok || len(s) < 6 || s[0] != '-' || s[3] != '-' {
		return 0, "", false
	}
	m, _, okM := cutNumber(s[1:], 2)
	d, rest, okD := cutNumber(s[4:], 2)
	if negative {
		y = -y
	}
	day, ok = DayOf(y, int(m), int(d))
	return day, rest, ok && okM && okD
}

// cutTimeOfDay reads hh:mm, seconds and a fraction of at most digits digits;
// 24:00 and leap seconds are no times.
func cutTimeOfDay(s string, digits int) (v int64, rest string, ok bool) {
	h, s, ok := cutNumber(s, 2)
	if !ok || h > 23 || s == "" || s[0] != ':' {
		return 0, "", false
	}
	m, s, ok := cutNumber(s[1:], 2)
	if !ok || m > 59 {
		return 0, "", false
	}
	var sec, fraction int64
	if s != "" && s[0] == ':' {
		if sec, s, ok = cutNumber(s[1:], 2); !ok || sec > 59 {
			return 0, "", false
		}
		if s != "" && s[0] == '.' {
			n := 1
			for n < len(s) && s[n] >= '0' && s[n] <= '9' {
				n++
			}
			if n == 1 || n-1 > digits {
				return 0, "", false
			}
			fraction, s, _ = cutNumber(s[1:], n-1)
			for ; n-1 < digits; n++ {
				fraction *= 10
			}
		}
	}
	v = h*3600 + m*60 + sec
	for range digits {
		v *= 10
	}
	return v + fraction, s, true
}

// cutOffset reads Z or ±hh:mm, in seconds.
func cutOffset(s string) (seconds int64, rest string, ok bool) {
	if s == "" {
		return 0, "", false
	}
	if s[0] == 'Z' {
		return 0, s[1:], true
	}
	if s[0] != '+' && s[0] != '-' || len(s) < 6 || s[3] != ':' {
		return 0, "", false
	}
	h, _, okH := cutNumber(s[1:], 2)
	m, rest, okM := cutNumber(s[4:], 2)
	seconds = h*3600 + m*60
	if s[0] == '-' {
		seconds = -seconds
	}
	return seconds, rest, okH && okM && h <= 18 && m <= 59
}

// parseTemporal reads a date, time or timestamp. A zone is demanded where the
// type has one and refused where it has none.
func parseTemporal(t Type, s string) (int64, bool) {
	switch t.Kind {
	case Date:
		day, rest, ok := cutDate(s)
		return day, ok && rest == ""
	case Time:
		v, rest, ok := cutTimeOfDay(s, 6)
		return v, ok && rest == ""
	}
	digits, perSecond := 6, int64(MicrosPerSecond)
	if t.Kind == TimestampNs || t.Kind == TimestampTzNs {
		digits, perSecond = 9, MicrosPerSecond*NanosPerMicro
	}
	day, rest, ok := cutDate(s)
	if !ok || rest == "" || rest[0] != 'T' && rest[0] != ' ' {
		return 0, false
	}
	tod, rest, ok := cutTimeOfDay(rest[1:], digits)
	if !ok {
		return 0, false
	}
	var offset int64
	if t.Kind == TimestampTz || t.Kind == TimestampTzNs {
		if offset, rest, ok = cutOffset(rest); !ok {
			return 0, false
		}
	}
	if rest != "" {
		return 0, false
	}
	// The product may pass an int64: 128 bits tell.
	perDay := 24 * 3600 * perSecond
	sum := int128Of(tod - offset*perSecond)
	big := int128Of(abs64(day)).mulAdd(uint64(perDay), 0)
	if day < 0 {
		big = big.neg()
	}
	return big.sub(sum.neg()).int64()
}

func abs64(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}
