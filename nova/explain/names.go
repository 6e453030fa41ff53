package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// namesInLine is how many names or ranges a line contains.
const namesInLine = 6

// series is a name whose last digits count.
type series struct {
	before, after string
	digits        string
	number        int
}

// split returns the parts of a name around its last number; ok is false if it has none. Numbers of
// a domain do not count: gpu12.rack3.example has 12.
func split(name string) (s series, ok bool) {
	short, _, _ := strings.Cut(name, ".")
	end := strings.LastIndexAny(short, "0123456789") + 1
	begin := len(strings.TrimRight(short[:end], "0123456789"))
	n, err := strconv.Atoi(short[begin:end])
	return series{short[:begin], name[end:], short[begin:end], n}, err == nil
}

// compareNames orders names with numbers by these: gpu2 before gpu10.
func compareNames(a, b string) int {
	x, isSeries := split(a)
	y, isToo := split(b)
	if isSeries && isToo && x.before == y.before && x.after == y.after {
		return cmp.Or(cmp.Compare(x.number, y.number), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// Names returns names, in the order of compareNames, in one line of at most a number of names and
// ranges: "gpu[1-10], gpu14 and 3 more". 0 is for all.
func Names(names []string, most int) string {
	var words []string
	shown := 0 // names in words
	for i := 0; i < len(names); {
		if most > 0 && len(words) == most {
			return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), len(names)-shown)
		}
		first, ok := split(names[i])
		k := i + 1
		for last := first; ok && k < len(names); k++ {
			next, isSeries := split(names[k])
			if !isSeries || next.before != first.before || next.after != first.after || next.number != last.number+1 {
				break
			}
			if strings.HasPrefix(first.digits, "0") && len(next.digits) != len(first.digits) {
				break
			}
			last = next
		}
		if k-i < 3 { // a range of two is no shorter
			k = i + 1
			words = append(words, names[i])
		} else {
			last, _ := split(names[k-1])
			words = append(words, fmt.Sprintf("%s[%s-%s]%s", first.before, first.digits, last.digits, first.after))
		}
		shown += k - i
		i = k
	}
	return strings.Join(words, ", ")
}
