package nvidia

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is the version of a driver, such as "550.163.01", or of a CUDA toolkit, such as "12.4".
type Version string

// Compare compares versions number by number: 535.104.05 is later than 535.86.09. A number that is
// missing is 0, and so is text that is not a number.
func (v Version) Compare(other Version) int {
	a, b := v.numbers(), other.numbers()
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(at(a, i), at(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

// Differs reports whether two versions are both known and not the same.
func (v Version) Differs(other Version) bool {
	return v != "" && other != "" && v.Compare(other) != 0
}

// Branch returns the first number, 550 for 550.163.01, or 0 if there is none.
func (v Version) Branch() int {
	return at(v.numbers(), 0)
}

func at(numbers []int, i int) int {
	if i >= len(numbers) {
		return 0
	}
	return numbers[i]
}

func (v Version) numbers() (numbers []int) {
	for part := range strings.SplitSeq(string(v), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			n = 0
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// digits is the largest number of digits in a number of a version. NVIDIA's have up to four.
const digits = 5

// leading returns the version of two or three numbers at the beginning of s, and what follows it.
func leading(s string) (Version, string, bool) {
	end, numbers := 0, 0
	for numbers < 3 {
		start := end
		if numbers > 0 {
			if end == len(s) || s[end] != '.' {
				break
			}
			start++
		}
		stop := start
		for stop < len(s) && '0' <= s[stop] && s[stop] <= '9' {
			stop++
		}
		if stop == start || stop-start > digits {
			break
		}
		end, numbers = stop, numbers+1
	}
	if numbers < 2 {
		return "", s, false
	}
	return Version(s[:end]), s[end:], true
}

// ParseVersion returns the version that s is: two or three numbers with dots between them.
func ParseVersion(s string) (v Version, ok bool) {
	v, rest, ok := leading(s)
	return v, ok && rest == ""
}
