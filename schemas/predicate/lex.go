package predicate

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	end    kind = iota
	word        // a bare name or keyword
	name        // a quoted name
	text        // 'text'
	number      // of digits, sign, point, exponent
	symbol      // an operator, a parenthesis, a comma
)

// token is a piece of a predicate.
type token struct {
	kind kind
	text string
	at   int // character that it begins at, from 1
}

// is says whether a token is a keyword.
func (t *token) is(w string) bool { return t.kind == word && strings.EqualFold(t.text, w) }

func (t *token) sym(s string) bool { return t.kind == symbol && t.text == s }

// Error is what is wrong with a predicate, and at which character, from 1.
type Error struct {
	At   int
	What string
}

func (e *Error) Error() string { return fmt.Sprintf("character %d: %s", e.At, e.What) }

func wrong(at int, format string, args ...any) *Error {
	return &Error{at, fmt.Sprintf(format, args...)}
}

// lexer splits a predicate into tokens.
type lexer struct {
	s  string
	at int // bytes
	ch int // characters before
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// pass moves on by n bytes.
func (l *lexer) pass(n int) string {
	out := l.s[l.at : l.at+n]
	l.at += n
	l.ch += utf8.RuneCountInString(out)
	return out
}

func (l *lexer) next() (token, error) {
	for l.at < len(l.s) && strings.IndexByte(" \t\r\n", l.s[l.at]) >= 0 {
		l.pass(1)
	}
	t := token{at: l.ch + 1}
	if l.at == len(l.s) {
		return t, nil
	}
	rest := l.s[l.at:]
	switch c := rest[0]; {
	case c == '\'' || c == '"' || c == '`':
		t.kind = name
		if c == '\'' {
			t.kind = text
		}
		body, after, ok := CutQuoted(rest)
		if !ok {
			return t, wrong(t.at, "the quote is not closed")
		}
		l.pass(len(rest) - len(after))
		t.text = body
		return t, nil
	case letter(c):
		n := 1
		for n < len(rest) && (letter(rest[n]) || digit(rest[n])) {
			n++
		}
		t.kind, t.text = word, l.pass(n)
		return t, nil
	case digit(c) || c == '.' || c == '-' || c == '+':
		n := 1
		for n < len(rest) && (digit(rest[n]) || letter(rest[n]) || rest[n] == '.' || (rest[n] == '-' || rest[n] == '+') && rest[n-1]|0x20 == 'e') {
			n++
		}
		t.kind, t.text = number, l.pass(n)
		return t, nil
	}
	t.kind = symbol
	for _, s := range [...]string{"!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ","} {
		if strings.HasPrefix(rest, s) {
			t.text = l.pass(len(s))
			return t, nil
		}
	}
	return t, wrong(t.at, "this character has no meaning here; texts stand in 'quotes', names of other characters in \"quotes\"")
}

// CutQuoted reads what stands in quotes at the beginning of s, where a quote is
// doubled, and gives what comes after; ok tells whether it is closed. s is not
// empty, and its first byte is the quote.
func CutQuoted(s string) (body, after string, ok bool) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != quote {
			b.WriteByte(s[i])
			continue
		}
		if i+1 == len(s) || s[i+1] != quote {
			return b.String(), s[i+1:], true
		}
		b.WriteByte(quote)
		i++
	}
	return "", "", false
}
