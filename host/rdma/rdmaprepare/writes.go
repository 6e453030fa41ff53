package rdmaprepare

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"gpustack/host"
)

// A line that names the attribute of the number of VFs sets VFs, unless each mention is one that is
// known only to read. The functions of this file therefore err towards a write.

// vfFile is the attribute that sets the number of VFs (Linux,
// Documentation/ABI/testing/sysfs-bus-pci), or MLNX_OFED's for mlx5_core.
var vfFile = host.LazyRegexp(vfNames)

const vfNames = `sriov_numvfs|mlx5_num_vfs`

func namesVFs(text string) bool { return vfFile().MatchString(text) }

// ruleReads matches what udev(7) only reads: a comparison, a test, and the substitution of a value.
var ruleReads = host.LazyRegexp(`ATTRS?\{[^}]*(` + vfNames + `)\}\s*[=!]=|TEST(\{[0-7]*\})?\s*[=!]=\s*"[^"]*"|(\$attr|%s)\{[^}]*(` + vfNames + `)\}`)

// ruleProgram matches the value of a key of udev(7) that starts a program.
var ruleProgram = host.LazyRegexp(`(?:RUN(?:\{program\})?|PROGRAM|IMPORT\{program\})\s*[+:=!]?=\s*"((?:[^"\\]|\\.)*)"`)

// ruleWrites reports whether a rule of udev(7) sets VFs.
func ruleWrites(line, _ string) bool {
	rest := ruleReads().ReplaceAllString(line, "")
	for _, program := range ruleProgram().FindAllStringSubmatch(rest, -1) {
		if shellWrites(program[1], nil) {
			return true
		}
	}
	return namesVFs(ruleProgram().ReplaceAllString(rest, ""))
}

// tmpfileWrites reports whether a line of tmpfiles.d(5) sets VFs: other types set a mode, remove,
// or leave the file alone.
func tmpfileWrites(line, _ string) bool {
	return namesVFs(line) && !strings.ContainsAny(line[:1], "zZmxXrRaAtThH")
}

// sysfsWrites reports whether a line of sysfs.conf(5) sets VFs: it may set the mode or the owner of
// the attribute instead.
func sysfsWrites(line, _ string) bool {
	first, _, _ := strings.Cut(line, " ")
	return namesVFs(line) && first != "mode" && first != "owner"
}

// unitReads are keys of systemd.unit(5) that set nothing. A key of a condition reads.
var unitReads = host.LazyRegexp(`^(Description|Documentation|(Condition|Assert)\w+|ReadWritePaths|ReadOnlyPaths)\s*=`)

// unitCommand returns the command of a line of systemd.service(5).
func unitCommand(line string) string {
	if unitReads().MatchString(line) {
		return ""
	}
	if key, command, ok := strings.Cut(line, "="); ok && strings.HasPrefix(key, "Exec") {
		return strings.TrimLeft(strings.TrimSpace(command), "-@:+!")
	}
	return line
}

// cronCommand returns the command of a line of crontab(5), which follows the schedule, and a user
// in the system's tables.
func cronCommand(line string, system bool) string {
	skip := 5
	if strings.HasPrefix(line, "@") {
		skip = 1
	}
	if system {
		skip++
	}
	return afterFields(line, skip)
}

// afterFields returns a line without its first fields, or all of a line that has no more.
func afterFields(line string, n int) string {
	rest := line
	for range n {
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			return line
		}
		rest = strings.TrimLeft(rest[end:], " \t")
	}
	return rest
}

// language is the language of a script.
type language int

const (
	shell language = iota // also without an interpreter
	python
	otherLanguage
)

var (
	shells  = host.LazyRegexp(`\b(ba|da|k|z|a)?sh\b|init-d-script|openrc-run|runscript`)
	pythons = host.LazyRegexp(`\bpython[0-9.]*\b`)
	// interpreters matches the names of interpreters that are started with a script, and withArgument
	// their options that have an argument.
	interpreters = host.LazyRegexp(`^((ba|da|k|z|a)?sh|(python|perl)[0-9.]*)$`)
	withArgument = host.LazyRegexp(`^-[a-zA-Z]*[oOWX]$`)
)

// languageOf returns the language of a script by its interpreter, or by its first line if none is
// named.
func languageOf(interpreter string, lines []string) language {
	if interpreter == "" && len(lines) > 0 && strings.HasPrefix(lines[0], "#!") {
		interpreter = lines[0]
	}
	switch {
	case interpreter == "" || shells().MatchString(interpreter):
		return shell
	case pythons().MatchString(interpreter):
		return python
	}
	return otherLanguage
}

var (
	pythonReads = host.LazyRegexp(`(^|[^.\w])open\(|\.(read_text|read_bytes|exists|is_file|isfile|access)\(`)
	// pythonChanges matches modes of files, calls that write, and calls that start programs.
	pythonChanges = host.LazyRegexp(`["'](w|a|x|rb?\+)[bt+]*["']|write|mode\s*=|os\.open|O_WRONLY|O_RDWR|system|(?i:popen)|subprocess|spawn|exec|call\(|run\(|check_output`)
)

// pythonWrites reports whether a line of a script of Python sets VFs. In a script without a call
// that changes files or starts programs no line does.
func pythonWrites(line string, script []string) bool {
	if !namesVFs(line) || !slices.ContainsFunc(script, pythonChanges().MatchString) {
		return false
	}
	reads := pythonReads().MatchString(line) && !pythonChanges().MatchString(line) && strings.Count(line, "(") == strings.Count(line, ")")
	return !reads
}

// variables are the variables of a shell's script that have the attribute's path, with the path.
type variables map[string]string

var (
	assignment   = host.LazyRegexp(`(?:^|[\s;&|({])([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s;&|"']*)`)
	substitution = host.LazyRegexp("\\$\\([^()]*\\)|`[^`]*`")
	loop         = host.LazyRegexp(`\bfor\s+([A-Za-z_]\w*)\s+in\s+([^;]*)`)
)

// variablesOf returns the variables of a script that its lines use. One that no line uses may be
// for another script.
func variablesOf(lines []string) variables {
	v := variables{}
	for _, line := range lines {
		for _, m := range slices.Concat(assignment().FindAllStringSubmatch(line, -1), loop().FindAllStringSubmatch(line, -1)) {
			value := v.expand(substitution().ReplaceAllString(strings.Trim(m[2], `"'`), "$$_"))
			at := slices.IndexFunc(strings.Fields(value), namesVFs)
			if at >= 0 && !strings.ContainsAny(value, "`(>") {
				v[m[1]] = strings.Fields(value)[at]
			}
		}
	}
	for name := range v {
		if !slices.ContainsFunc(lines, use(name).MatchString) {
			delete(v, name)
		}
	}
	return v
}

// folderOf matches the expansion of a variable to the folder of its path.
func folderOf(name string) *regexp.Regexp {
	return regexp.MustCompile(`\$\{` + name + `%/(\*|` + vfNames + `)\}`)
}

func use(name string) *regexp.Regexp { return regexp.MustCompile(`\$\{?` + name + `\b`) }

// expand returns a text with the values of the variables.
func (v variables) expand(text string) string {
	for _, name := range sorted(v) {
		if strings.Contains(text, name) {
			if strings.Contains(v[name], "/") {
				text = folderOf(name).ReplaceAllLiteralString(text, path.Dir(v[name]))
			}
			text = use(name).ReplaceAllLiteralString(text, v[name])
		}
	}
	return text
}

// shellWrites reports whether a line of a shell's script sets VFs.
func shellWrites(line string, v variables) bool {
	text := v.expand(line)
	if !namesVFs(text) {
		return false
	}
	commands := parse(text, false)
	for i := range commands {
		if c := &commands[i]; c.piped && i+1 < len(commands) && commands[i+1].counts() && !slices.ContainsFunc(c.targets, isFile) {
			c.piped, c.counted = false, true
		}
	}
	piped := slices.ContainsFunc(commands, func(c command) bool { return c.piped })
	return slices.ContainsFunc(commands, func(c command) bool { return c.writes(v, piped) })
}

// command is a simple command of a shell. Its text in quotes is part of it like any other, so that
// a command for another shell is understood, and each word may be part of a word in quotes.
type command struct {
	words    []string
	targets  []string // of output
	sources  []string // of input
	text     bool     // its input is part of the script
	piped    bool     // to another command
	counted  bool     // to another command that only counts its output
	captured bool     // its output becomes part of another command
}

// counts reports whether a command only counts its input: wc(1) without names of files.
func (c command) counts() bool {
	return len(c.words) > 0 && path.Base(c.words[0]) == "wc" && !slices.ContainsFunc(c.words[1:], func(w string) bool {
		return !strings.HasPrefix(w, "-") || strings.HasPrefix(w, "--files")
	})
}

// isFile reports whether a target of output is a file that can be read later.
func isFile(target string) bool { return target != "/dev/null" && target != "1" && target != "2" }

// parse returns the commands of a line, those of its substitutions too.
func parse(text string, captured bool) (all []command) {
	c := command{captured: captured}
	word, place := "", &c.words
	quote := byte(0)
	flush := func() {
		if word != "" {
			*place = append(*place, word)
			word, place = "", &c.words
		}
	}
	end := func() {
		flush()
		all = append(all, c)
		c, place = command{captured: captured}, &c.words
	}
	for i := 0; i < len(text); i++ {
		rest := text[i+1:]
		switch b := text[i]; {
		case b == '\\':
			if rest != "" && strings.IndexByte(`"'`, rest[0]) >= 0 {
				i++ // no quote begins or ends
			}
		case b == '"' || b == '\'':
			switch quote {
			case 0:
				quote = b
			case b:
				quote = 0
			}
		case b == '#' && word == "" && quote == 0:
			i = len(text)
		case b == '$' && strings.HasPrefix(rest, "("):
			within := balanced(rest[1:])
			all = append(all, parse(within, true)...)
			word += "$_"
			i += len("(") + len(within) + len(")")
		case b == '`':
			within, _, _ := strings.Cut(rest, "`")
			all = append(all, parse(within, true)...)
			word += "$_"
			i += len(within) + len("`")
		case strings.IndexByte(";&|()\n", b) >= 0:
			c.piped = b == '|' && !strings.HasPrefix(rest, "|") && (i == 0 || text[i-1] != '|')
			end()
		case b == '>':
			flush()
			i += len(rest) - len(strings.TrimLeft(rest, ">|&"))
			place = &c.targets
		case b == '<' && strings.HasPrefix(rest, "<"):
			flush()
			i += len(rest) - len(strings.TrimLeft(rest, "<"))
			c.text = true
		case b == '<':
			flush()
			place = &c.sources
		case b == ' ' || b == '\t':
			flush()
		default:
			word += string(b)
		}
	}
	end()
	return all
}

// balanced returns the text before the parenthesis that closes one which was opened before it.
func balanced(text string) string {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return text[:i]
			}
		}
	}
	return text
}

// plainTarget matches the name of a file that ends where its word does.
var plainTarget = host.LazyRegexp(`^([\w./@%+:=-]|\$\w+|\$\{\w+\})+$`)

// Words that a shell's line begins with before the command, shells that execute an argument, and
// commands that only read the files they are given and do not print their names. What others do
// cannot be determined.
var (
	leading = []string{"if", "while", "until", "then", "do", "else", "elif", "!", "time", "{", "exec", "sudo", "command", "builtin", "nohup", "local", "readonly", "declare", "typeset"}
	nested  = []string{"sh", "bash", "dash", "ash", "ksh", "zsh"}
	readers = []string{"cat", "dirname", "cut", "sort", "uniq", "od", "xxd", "hexdump", "test", "[", "[["}
)

// program returns the words of the command that a line's words start, without assignments.
// Assignments are those of the attribute's path to other variables than the known ones, or for the
// command alone.
func (c command) program(v variables) (words []string, assigns bool) {
	words = c.words
	for i := 0; len(words) > 0; i++ {
		option := i > 0 && strings.HasPrefix(words[0], "-") && !strings.Contains(words[0], "x") // declare -x is export
		if !slices.Contains(leading, words[0]) && !option {
			break
		}
		words = words[1:]
	}
	if len(words) > 1 && slices.Contains(nested, path.Base(words[0])) && strings.HasPrefix(words[1], "-") {
		words = withoutOptions(words[1:])
	}
	paths := 0
	for ; len(words) > 0; words = words[1:] {
		name, _, ok := strings.Cut(words[0], "=")
		if !ok || strings.Contains(name, "/") {
			break
		}
		if namesVFs(words[0]) {
			paths++
			_, known := v[name]
			assigns = assigns || !known
		}
	}
	return words, assigns || paths > 0 && len(words) > 0
}

// writes reports whether a command sets VFs. Names of files that it prints may be written to by
// another command.
func (c command) writes(v variables, piped bool) bool {
	unclear := func(target string) bool { return namesVFs(target) || !plainTarget().MatchString(target) }
	if slices.ContainsFunc(c.targets, unclear) {
		return true
	}
	if !slices.ContainsFunc(c.words, namesVFs) {
		return false
	}
	words, assigns := c.program(v)
	switch {
	case assigns || c.text:
		return true
	case !slices.ContainsFunc(words, namesVFs):
		return false
	}
	silent := slices.Contains(c.targets, "/dev/null") || slices.Contains(c.targets, "2")
	shown := !c.captured && !piped
	switch name := path.Base(words[0]); {
	case slices.Contains(readers, name):
		return false
	case slices.Contains([]string{"]", "]]"}, words[len(words)-1]) && strings.HasPrefix(name, "-"):
		return false // behind && of a test
	case name == "awk":
		return len(c.targets) > 0 || !onlySearches(words)
	case name == "grep" || name == "head" || name == "tail":
		return !onlySearches(words)
	case name == "ls" && c.counted:
		return false
	case name == "ls" || name == "stat" || name == "readlink":
		return !silent || !shown
	case name == "echo" || name == "printf" || name == "logger":
		message := shown && name != "printf" && len(withoutOptions(words)) > 2
		return slices.ContainsFunc(words, isPath().MatchString) && !silent && !message
	case name == "for" && len(words) > 1:
		_, known := v[words[1]]
		return !known
	}
	return true
}

// onlySearches reports whether a command that searches files prints no names of them, and starts no
// program.
func onlySearches(words []string) bool {
	for _, word := range words[1:] {
		options := strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--")
		switch {
		case options && strings.ContainsAny(word, "lLHrRvf"), strings.HasPrefix(word, "--files"), strings.HasPrefix(word, "--with"):
			return false
		case strings.Contains(word, "system"), strings.Contains(word, "FILENAME"), strings.Contains(word, "ARGV"), strings.Contains(word, "getline"):
			return false
		case namesVFs(word) && strings.ContainsAny(word, "*?[="):
			return false
		}
	}
	return true
}

func withoutOptions(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.HasPrefix(w, "-") })
}

// isPath matches the attribute as a file, not the name of a metric.
var isPath = host.LazyRegexp(`(^|/)(` + vfNames + `)$`)
