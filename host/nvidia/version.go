package nvidia

import (
	"cmp"
	"strconv"
	"strings"

	"gpustack/host"
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

// versionText matches two or three numbers with dots between them. NVIDIA's have up to four digits.
var versionText = host.LazyRegexp(`^[0-9]{1,5}(\.[0-9]{1,5}){1,2}$`)

// ParseVersion returns the version that s is: two or three numbers with dots between them.
func ParseVersion(s string) (v Version, ok bool) {
	return Version(s), versionText().MatchString(s)
}
