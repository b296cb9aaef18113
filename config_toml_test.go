package main

// config_toml_test.go holds the TOML reader against a corpus written from the TOML 1.0 specification: values, documents
// and errors with their places; then look-ups and fuzzing.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// showTOML writes a value so that two of different kinds never look alike: floats carry an f.
func showTOML(v *tomlValue) string {
	switch val := v.val.(type) {
	case float64:
		return strconv.FormatFloat(val, 'g', -1, 64) + "f"
	case []*tomlValue:
		var parts []string
		for _, e := range val {
			parts = append(parts, showTOML(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case *tomlTable:
		return showTOMLTable(val)
	}
	data, _ := json.Marshal(v.plain())
	return string(data)
}

func showTOMLTable(t *tomlTable) string {
	var parts []string
	for _, key := range t.keys() {
		parts = append(parts, strconv.Quote(key)+":"+showTOML(t.get(key)))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// tomlAt follows a path through tables; nil when a part is missing or no table.
func tomlAt(t *tomlTable, path ...string) (v *tomlValue) {
	for _, key := range path {
		v = t.get(key)
		t = v.table()
	}
	return v
}

// tomlValidDocs are documents with what they are read as.
func tomlValidDocs() [][2]string {
	docs := [][2]string{
		// Documents, blanks, comments, newlines.
		{"", `{}`}, {"\n\n  \t\n", `{}`}, {"# only a comment", `{}`}, {"# \ttab and ünïcode # twice\n", `{}`},
		{"\ufeffa = 1", `{"a":1}`}, {"a=1", `{"a":1}`}, {"\t a \t=\t 1 \t", `{"a":1}`},
		{"a = 1 # one\r\n# two\r\n[t] # three\r\n", `{"a":1,"t":{}}`},
		// Keys.
		{"bare_key = 2\nbare-key = 3\n1234 = 4\n\"127.0.0.1\" = 1\n\"ʎǝʞ\" = 3\n'quoted \"value\"' = 5",
			`{"bare_key":2,"bare-key":3,"1234":4,"127.0.0.1":1,"ʎǝʞ":3,"quoted \"value\"":5}`},
		{"\"\" = 1", `{"":1}`}, {"\"\".'' = 1", `{"":{"":1}}`}, {"3.14159 = \"pi\"", `{"3":{"14159":"pi"}}`},
		{"\"a\\u0062\\n\" = 1\n'a\\b' = 1", `{"ab\n":1,"a\\b":1}`}, {"a = 1\nA = 2", `{"a":1,"A":2}`},
		{"physical.color = 2\nsite.\"google.com\" = true", `{"physical":{"color":2},"site":{"google.com":true}}`},
		{"fruit . color = 1\nfruit\t.\tflavor = 2", `{"fruit":{"color":1,"flavor":2}}`},
		{"apple.type = 1\norange = 2\napple.skin.a = 3", `{"apple":{"type":1,"skin":{"a":3}},"orange":2}`},
		{"true = 1\ninf = 2\n1979-05-27 = 3\n-1 = 4\n- = 5\n_ = 6",
			`{"true":1,"inf":2,"1979-05-27":3,"-1":4,"-":5,"_":6}`},
		// Tables.
		{"[a]\nk = 1\n[b]\nk = 2", `{"a":{"k":1},"b":{"k":2}}`}, {"['a.b']\n[a.b]", `{"a.b":{},"a":{"b":{}}}`},
		{"[dog.\"tater.man\"]\ntype.name = \"pug\"", `{"dog":{"tater.man":{"type":{"name":"pug"}}}}`},
		{"[a.b.c]\n[ d.e ]\n[ g .  h ]\n[ j . \"ʞ\" . 'l' ]",
			`{"a":{"b":{"c":{}}},"d":{"e":{}},"g":{"h":{}},"j":{"ʞ":{"l":{}}}}`},
		{"[x.y.z.w]\n[x]\nk = 1\n[x.c]", `{"x":{"y":{"z":{"w":{}}},"k":1,"c":{}}}`},
		{"[fruit.apple]\n[animal]\n[fruit.orange]", `{"fruit":{"apple":{},"orange":{}},"animal":{}}`},
		{"[fruit]\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true",
			`{"fruit":{"apple":{"taste":{"sweet":true},"texture":{"smooth":true}}}}`},
		{"[\"\"]\n[\"\".\"\"]", `{"":{"":{}}}`},
		// Inline tables.
		{"a.b = { c = 1 }\na.d = { e.f = 2 }", `{"a":{"b":{"c":1},"d":{"e":{"f":2}}}}`},
		// Arrays of tables.
		{"[[p]]\nname = \"H\"\n\n[[p]]  # empty\n\n[[p]]\nname = \"N\"", `{"p":[{"name":"H"},{},{"name":"N"}]}`},
		{"[[f]]\nn = 1\n[f.physical]\nc = 1\n[[f.v]]\nn = 2\n[[f.v]]\nn = 3\n[[f]]\nn = 4\n[[f.v]]\nn = 5",
			`{"f":[{"n":1,"physical":{"c":1},"v":[{"n":2},{"n":3}]},{"n":4,"v":[{"n":5}]}]}`},
		{"[[ a . 'b' ]]\nx.y = 1\n[a]\ny = 2", `{"a":{"b":[{"x":{"y":1}}],"y":2}}`},
		{"[[a]]\n[a.b.c]\n[[a]]\n[a.b.c]", `{"a":[{"b":{"c":{}}},{"b":{"c":{}}}]}`},
		{"[[a]]\nb.c = 1\n[a.b.d]\nx = 1", `{"a":[{"b":{"c":1,"d":{"x":1}}}]}`},
	}
	for _, v := range tomlValidValues() {
		docs = append(docs, [2]string{"v = " + v[0] + " # end", `{"v":` + v[1] + `}`})
	}
	return docs
}

func tomlValidValues() [][2]string {
	return [][2]string{
		// Basic strings.
		{`""`, `""`}, {`"# [x] = {"`, `"# [x] = {"`}, {"\"a\tb ü 😀\"", `"a\tb ü 😀"`},
		{"\"\u0080\ufeff\ufffd\"", "\"\u0080\ufeff\ufffd\""}, {`"I'm \"it\".\tJos\u00E9\n"`, `"I'm \"it\".\tJosé\n"`},
		{`"\b\t\n\f\r\"\\"`, `"\b\t\n\f\r\"\\"`},
		{`"\u0000\u007F\uD7FF\uE000\uffff"`, "\"\\u0000\x7f\ud7ff\ue000\uffff\""},
		{`"\U0001F600\U0010ffff\U00000041"`, "\"😀\U0010ffffA\""},
		// Multi-line basic strings.
		{`""""""`, `""`}, {"\"\"\"\nRoses\nViolets\"\"\"", `"Roses\nViolets"`}, {"\"\"\"\n\nx\"\"\"", `"\nx"`},
		{"\"\"\"\nquick \\\n\n\n  fox \\\n   .\"\"\"", `"quick fox ."`}, {"\"\"\"a \\  \t \n b\"\"\"", `"a b"`},
		{`"""two: ""."""`, `"two: \"\"."`}, {`"""three: ""\"."""`, `"three: \"\"\"."`}, {`"""a"""""`, `"a\"\""`},
		{`"""""a"""`, `"\"\"a"`}, {`""""""""`, `"\"\""`}, {"\"\"\"a\\\\\nb\"\"\"", `"a\\\nb"`},
		{`"""a \u00e9 \t"""`, `"a é \t"`}, {"\"\"\"\n# no comment\n\"\"\"", `"# no comment\n"`},
		// Literal strings.
		{`''`, `""`}, {`'C:\Users\nodejs'`, `"C:\\Users\\nodejs"`}, {`'<\i\c*\s*>'`, `"\u003c\\i\\c*\\s*\u003e"`},
		{`''''''`, `""`}, {"'''\nThe first newline\n   \\\n'''", `"The first newline\n   \\\n"`},
		{`'''''two''inside'''''`, `"''two''inside''"`}, {`''''That,' she.'''`, `"'That,' she."`},
		// Numbers and booleans.
		{"+99", "99"}, {"0", "0"}, {"-17", "-17"}, {"+0", "0"}, {"-0", "0"}, {"5_349_221", "5349221"},
		{"1_2_3_4_5", "12345"}, {"9223372036854775807", "9223372036854775807"},
		{"-9223372036854775808", "-9223372036854775808"}, {"+1.0", "1f"}, {"-0.01", "-0.01f"}, {"5e+22", "5e+22f"},
		{"1e06", "1e+06f"}, {"-2E-2", "-0.02f"}, {"1e0_1", "10f"}, {"224_617.445_991_228", "224617.445991228f"},
		{"-0.0", "-0f"}, {"0e0", "0f"}, {"true", "true"}, {"false", "false"},
		// Arrays.
		{"[]", "[]"}, {"[\n]", "[]"}, {"[1,]", "[1]"}, {"[# at once\n1]", "[1]"},
		{"[\n\"\"\"\nlong\n\"\"\"\n]", `["long\n"]`},
		{"[ 0.1, 1, 'x', { b = 1 }, [], [ 1, 2 ], true ]", `[0.1f,1,"x",{"b":1},[],[1,2],true]`},
		{"[\n  1, # one\n\n  # between\n  2 # two\n  , # c\n]", "[1,2]"}, {"[{x=1},\n {x=2}]", `[{"x":1},{"x":2}]`},
		// Inline tables.
		{"{ }", "{}"}, {"{\tx=1\t}", `{"x":1}`}, {"{ s = \"\"\"x\ny\"\"\" }", `{"s":"x\ny"}`},
		{"{a='b',c.d=1}", `{"a":"b","c":{"d":1}}`},
		{"{ b.c = 1, b.d = 2, e = { f = [ 1,\n 2 ] } }", `{"b":{"c":1,"d":2},"e":{"f":[1,2]}}`},
	}
}

// tomlInvalidDocs are rows of a part of an error, mostly with its place, and the documents that must get it.
func tomlInvalidDocs() [][]string {
	return [][]string{
		// What may stand nowhere.
		{"1:6: byte 0xFF is not UTF-8", "a = \"\xff\""}, {"1:6: byte 0xED", "a = '\xed\xa0\x80'"},
		{"1:6: byte 0x80", "ü = '\x80'"}, {"1:1: byte 0xFF", "\xff\xfea"}, {"byte 0xF4", "a = '\xf4\x90\x80\x80'"},
		{"1:6: control character U+0000", "a = 1\x00"}, {"1:3: control character U+007F", "# \x7f"},
		{"U+001B", "'''\x1b'''"}, {"1:6: a carriage return", "a = 1\rb = 2"},
		{"2:1: a carriage return", "a = 1\n\r\r\n"}, {"U+0008", "a = \"\x08\""},
		{`1:5: "1\ufeff" is no number`, "a = 1\ufeff"}, {"1:1: a key is wanted", "\ufeff\ufeffa = 1"},
		// Lines and keys.
		{"1:7: the line should end here, but 'b' follows", "a = 1 b = 2"},
		{"the line should end here", "a = \"x\" y", "[a] b = 1", "a = [1] ]", `a = 'it's'`, "a = '''x''''''",
			"a = true false", "[a]]", "a = 1,000", "a = \"\"\"x\"\"\"\"\"\""},
		{"1:2: key \"a\" wants \"=\" here, not the end of the file", "a"},
		{"1:2: key \"a\" wants \"=\" here, not the end of the line", "a\n= 1"},
		{"wants \"=\" here", "a\u00a0= 1", "a! = 1", "\"\"\"a\"\"\" = 1", "a = { b }"},
		{"1:4: a value is wanted here, not the end of the file", "a ="},
		{"1:4: a value is wanted here, not the end of the line", "a =\n1"},
		{"a value is wanted here", "a = # 1", "a == 1", "a = ]", "a = [,]", "a = [1,,2]", "a = { b = }"},
		{"1:3: a key is wanted here, not '.'", "a..b = 1"}, {"1:1: a key is wanted here, not 'ʎ'", "ʎ = 1"},
		{"a key is wanted here", "= 1", ".a = 1", "a. = 1", "[]", "[a.]", "[[]]", "[ [a] ]", "a = { b = 1,, c = 2 }"},
		{"1:1: the string that begins here is not closed before the e", "\"a = 1", "'a\nb' = 1"},
		{"at most 64 parts", strings.Repeat("a.", 64) + "a = 1", "[" + strings.Repeat("a.", 64) + "a]"},
		// What is set twice, or added to from outside.
		{"2:1: key \"a\" is already set at line 1", "a = 1\na = 2", "a = 1\n\"\\u0061\" = 2", "a.b = 1\na = 2"},
		{"2:3: key \"b\" is already set at line 1", "a.b = 1\na.b = 2"},
		{"key \"a\" is already set at line 1 and is an int", "a = 1\na.b = 2", "a = 1\n[a]", "a = 1\n[a.b]",
			"a = 1\n[[a]]"},
		{"3:4: key \"b\" is already set at line 2 and is an", "[a]\nb = 1\n[a.b]", "[a]\nb = 1\n[a.b.c]"},
		{"key \"b\" is already set at line 1", "a = { b = 1, b = 2 }", "a = { b = 1, b.c = 2 }", "[a.b]\n[a]\nb = 1",
			"[[a.b]]\n[a]\nb = 1"},
		{"is an inline table", "a = { b = {}, b.c = 1 }", "a = { b = 1 }\na.c = 2", "a = { b = 1 }\n[a]",
			"a = { b = 1 }\n[a.c]", "a = { b = {} }\n[a.b.c]", "[t]\na = {}\n[t.a.b]"},
		{"2:2: table \"a\" is already defined at line 1", "[a]\n[a]", "a.b = 1\n[a]"},
		{"4:2: table \"a\" is already defined at line 1", "[a]\nb = 1\n[c]\n[a]\nd = 2"},
		{"is already defined", "[a.b]\n[a]\n[a.b]", "[f]\nb.c = 1\n[f.b]", "[f]\nb.c.d = true\n[f.b.c]",
			"[a.b.c]\n[a]\nb.x = 1\n[a.b]", "[[a]]\n[a.b]\n[a.b]"},
		{"4:3: table \"c\" has its own header at line 1", "[a.b.c]\nz = 9\n[a]\nb.c.t = 1"},
		{"table \"b\" has its own header at line 1", "[a.b]\n[a]\nb.c = 1"},
		{"2:3: key \"f\" is already set at line 1 and is an array of ", "f = []\n[[f]]", "f = [{}]\n[[f]]"},
		{"an array of values, which no header can add to", "f = [{}]\n[f.x]"},
		{"key \"f\" is already set at line 1 and is a table", "[f.p]\n[[f]]", "f.c = 1\n[[f]]"},
		{"an array of tables, written [[f]]", "[[f]]\n[f]", "[[f]]\nf.c = 1\n[[a.f]]\n[a]\nf.c = 1"},
		// Strings.
		{"1:5: the string that begins here is not closed before the end of the line", "a = \"x\ny\"", "a = 'x\ny'"},
		{"1:5: the string that begins here is not closed before the end of the file", "a = \"x", "a = \"\"\"x\"\"",
			"a = '''x''"},
		{"no escape of TOML 1.0", "\"\\x\" = 1", `a = "\x41"`, `a = "\0"`, `a = "\'"`, "a = \"x\\\ny\"",
			"a = \"\"\"x \\ y\"\"\""},
		{"1:6: 'a' after a backslash", `a = "\a"`}, {"the end of the file after a", `a = "\`},
		{"\\U wants 8 hexadecimal digits", `a = "C:\Users"`, `a = "\U0001F60"`},
		{"\\u wants 4", `a = "\u12G4"`, `a = "\u`},
		{"U+D800 is no character", `a = "\uD800"`, `a = "\U0000D800"`, "a = \"\"\"\\uD800\"\"\""},
		{"U+110000 is no character", `a = "\U00110000"`},
		{"is no value: text is written in qu", "a = \u201cx\u201d", "a = `x`", "a = True", "a = workspace-write"},
		// Numbers.
		{"1:5: \"01\" is no number", "a = 01"},
		{"is no number that this program reads", "a = -01", "a = 00", "a = 1_", "a = _1", "a = 1__0", "a = +-1",
			"a = -", "a = 0X1", "a = 0O7", "a = 0B1", "a = 1a", "a = .7", "a = 7.", "a = 3.e+20", "a = 03.14",
			"a = 1.2.3", "a = 1._2", "a = 1_.2", "a = 1.2_", "a = 1e", "a = 1e_1", "a = 1e+", "a = 1e1.5", "a = -inf",
			"a = [1)"},
		{"is no value", "a =\u00a01", "a = Inf", "a = nan", "a = tru", "a = true1", "a = null", "a = [b = 1]"},
		{"does not fit into 64 bits", "a = 9223372036854775808", "a = -9223372036854775809", "a = 1e400"},
		{"1:5: 1979-05-27T07:32:00Z is a date or time, which this program doesn't read", "a = 1979-05-27T07:32:00Z"},
		{"2:2: 07:32:00 is a date or time", "a = [\n 07:32:00 ]"},
		// Arrays, inline tables and headers that are not finished.
		{"1:5: the array that begins here is never closed", "a = [", "a = [1", "a = [1,", "a = [1 # ]"},
		{"1:8: the array wants \",\" or \"]\" here, not '2'", "a = [1 2]"},
		{"2:1: the array wants", "a = [1\n2]", "a = [1\n[b]\n"},
		{"1:6: a key is wanted here, not the end of the file", "a = {"},
		{"1:6: a key is wanted here, not the end of the line", "a = {\nb = 1 }"},
		{"1:14: an inline table has no comma before its \"}\" in TO", "a = { b = 1, }"},
		{"stands on one line, wants \",\" or \"}\" here", "a = { b = 1 c = 2 }", "a = { b = 1\n}", "a = { b = 1"},
		{"a key is wanted here, not '#'", "a = { b = 1, # x\n c = 2 }"},
		{"1:3: the table header wants \"]\" here, not the end of ", "[a", "[a\n]"},
		{"the table header wants", "[a b]", "[[a] ]", "[[a]", "[\"\"\"a\"\"\"]"},
		{"nested deeper than 64", "a = " + strings.Repeat("[", 65) + strings.Repeat("]", 65),
			"a = " + strings.Repeat("[", 1_000_000), "a = " + strings.Repeat("{a=", 65) + "1" +
				strings.Repeat("}", 65)},
	}
}

func TestTOMLValid(t *testing.T) {
	for _, d := range tomlValidDocs() {
		unix := strings.ReplaceAll(d[0], "\r\n", "\n")
		for _, doc := range []string{unix, strings.ReplaceAll(unix, "\n", "\r\n")} {
			if tab, err := parseTOML("x.toml", []byte(doc)); err != nil || showTOMLTable(tab) != d[1] {
				t.Errorf("%q\n got %s, %v\nwant %s", doc, showTOMLTable(tab), err, d[1])
			}
		}
	}
}

func TestTOMLInvalid(t *testing.T) {
	t.Parallel()
	for _, row := range tomlInvalidDocs() {
		want := row[0]
		for _, doc := range row[1:] {
			tab, err := parseTOML("x.toml", []byte(doc))
			if err == nil || !strings.HasPrefix(err.Error(), "x.toml:") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\n got %v, %s\nwant …%s…", cutName(doc), err, showTOMLTable(tab), want)
			}
		}
	}
	// A megabyte on one line is read in a moment: positions are counted once, not per value.
	_, err := parseTOML("x", []byte("a = ["+strings.Repeat("1,", 500_000)+"é]"))
	if err == nil || !strings.HasPrefix(err.Error(), "x:1:1000006: ") {
		t.Errorf("got %v", err)
	}
}

// Every value knows its place and its key's, look-ups find it, and plain is JSON.
func TestTOMLLookup(t *testing.T) {
	const doc = "\ufefftop = 'ü' \n[a . \"é\"]\n  k.m = [ 1,\n 'ö', {x=9007199254740993}]\n[[l]]\nf = 1.5\nb = true\n"
	tab, err := parseTOML("x", []byte(doc))
	wantNil(t, err)
	list := tomlAt(tab, "a", "é", "k", "m").val.([]*tomlValue)
	for v, want := range map[*tomlValue]string{
		tab.get("top"): "1:7 1:1", tomlAt(tab, "a"): "2:2 2:2", tomlAt(tab, "a", "é"): "2:6 2:6",
		tomlAt(tab, "a", "é", "k"):      "3:3 3:3",
		tomlAt(tab, "a", "é", "k", "m"): "3:9 3:5", list[0]: "3:11 0:0", list[1]: "4:2 0:0", list[2]: "4:7 0:0",
		list[2].table().get("x"): "4:10 4:8", tab.get("l"): "5:3 5:3",
	} {
		if got := fmt.Sprintf("%d:%d %d:%d", v.at.line, v.at.col, v.key.line, v.key.col); got != want {
			t.Errorf("%s: at %s, want %s", showTOML(v), got, want)
		}
	}
	if got := strings.Join(tab.keys(), " "); got != "top a l" {
		t.Errorf("keys %q, want the order of the document", got)
	}
	for _, path := range [][]string{{"z"}, {"z", "y"}, {"top", "x"}, {"a", "é", "k", "m", "e"}, {}} {
		if v := tomlAt(tab, path...); v != nil {
			t.Errorf("at(%q) = %s, want nothing", path, showTOML(v))
		}
	}
	if tab.get("top").table() != nil || tab.get("no").table().get("x") != nil ||
		tab.get("no").table().keys() != nil {
		t.Error("what is missing or no table should be an empty one")
	}
	data, err := json.Marshal(tab.plain())
	want := `{"a":{"é":{"k":{"m":[1,"ö",{"x":9007199254740993}]}}},"l":[{"b":true,"f":1.5}],"top":"ü"}`
	if err != nil || string(data) != want {
		t.Errorf("got  %s, %v\nwant %s", data, err, want)
	}
}

// Of any input: it is read the same way twice, every place is inside the document, and what is read is JSON.
func FuzzTOML(f *testing.F) {
	for _, d := range tomlValidDocs() {
		f.Add([]byte(d[0]))
	}
	for _, row := range tomlInvalidDocs() {
		for _, doc := range row[1:] {
			if len(doc) < 1000 {
				f.Add([]byte(doc))
			}
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		tab, err := parseTOML("x", doc)
		again, err2 := parseTOML("x", doc)
		if fmt.Sprint(err) != fmt.Sprint(err2) || showTOMLTable(tab) != showTOMLTable(again) {
			t.Fatalf("two readings: %v and %v", err, err2)
		}
		lines := strings.Split(string(doc), "\n")
		inside := func(line, col int) {
			t.Helper()
			if line < 1 || line > len(lines) || col < 1 || col > utf8.RuneCountInString(lines[line-1])+1 {
				t.Fatalf("position %d:%d is outside the document", line, col)
			}
		}
		if err != nil {
			var e *tomlError
			if !errors.As(err, &e) || e.what == "" {
				t.Fatalf("error without a position: %v", err)
			}
			inside(e.line, e.col)
			return
		}
		if _, err := json.Marshal(tab.plain()); err != nil || !utf8.Valid(doc) {
			t.Fatalf("plain is not JSON, or was read from what is not UTF-8: %v", err)
		}
		var walk func(v *tomlValue)
		walk = func(v *tomlValue) {
			inside(v.at.line, v.at.col)
			if v.key.line != 0 {
				inside(v.key.line, v.key.col)
			}
			switch val := v.val.(type) {
			case float64:
				if math.IsInf(val, 0) {
					t.Fatal("a number became infinite")
				}
			case []*tomlValue:
				for _, e := range val {
					walk(e)
				}
			case *tomlTable:
				for _, k := range val.keys() {
					walk(val.get(k))
				}
			}
		}
		walk(&tomlValue{val: tab, at: tomlPlace{1, 1}})
	})
}
