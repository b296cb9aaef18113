package main

// config_toml_test.go holds the TOML reader. The corpus is written from the TOML 1.0
// specification: each line of it is one sentence there. Positions, look-ups and
// fuzzing follow.

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
	switch v.kind {
	case tomlString:
		b, _ := json.Marshal(v.str)
		return string(b)
	case tomlInt:
		return strconv.FormatInt(v.i, 10)
	case tomlFloat:
		return strconv.FormatFloat(v.f, 'g', -1, 64) + "f"
	case tomlBool:
		return strconv.FormatBool(v.b)
	case tomlArray:
		var parts []string
		for _, e := range v.arr {
			parts = append(parts, showTOML(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case tomlTab:
		return showTOMLTable(v.tab)
	}
	return "?"
}

func showTOMLTable(t *tomlTable) string {
	var parts []string
	for _, k := range t.keys() {
		b, _ := json.Marshal(k)
		parts = append(parts, string(b)+":"+showTOML(t.get(k)))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func tomlValidDocs() [][2]string {
	return [][2]string{
		// Documents, blanks, comments, newlines.
		{"", `{}`},
		{"\n\n  \t\n", `{}`},
		{"# only a comment", `{}`},
		{"# a comment with \ttab and ünïcode # twice\n", `{}`},
		{"\ufeffa = 1", `{"a":1}`},
		{"\ufeff", `{}`},
		{"a = 1\r\nb = 2\r\n", `{"a":1,"b":2}`},
		{"a = 1 # one\r\n# two\r\n[t] # three\r\n", `{"a":1,"t":{}}`},
		{"a=1", `{"a":1}`},
		{"\t a \t=\t 1 \t", `{"a":1}`},
		{"a = \"# no comment\" # one", `{"a":"# no comment"}`},
		// Keys.
		{"key = 1\nbare_key = 2\nbare-key = 3\n1234 = 4", `{"key":1,"bare_key":2,"bare-key":3,"1234":4}`},
		{"\"127.0.0.1\" = 1\n\"character encoding\" = 2\n\"ʎǝʞ\" = 3\n'key2' = 4\n'quoted \"value\"' = 5", `{"127.0.0.1":1,"character encoding":2,"ʎǝʞ":3,"key2":4,"quoted \"value\"":5}`},
		{"\"\" = 1", `{"":1}`},
		{"'' = 1", `{"":1}`},
		{"\"\".'' = 1", `{"":{"":1}}`},
		{"\"a\\u0062\\n\" = 1", `{"ab\n":1}`},
		{"'a\\b' = 1", `{"a\\b":1}`},
		{"name = 1\nphysical.color = 2\nphysical.shape = 3\nsite.\"google.com\" = true", `{"name":1,"physical":{"color":2,"shape":3},"site":{"google.com":true}}`},
		{"fruit . color = 1\nfruit\t.\tflavor = 2", `{"fruit":{"color":1,"flavor":2}}`},
		{"fruit.apple.smooth = true\nfruit.orange = 2", `{"fruit":{"apple":{"smooth":true},"orange":2}}`},
		{"apple.type = 1\norange.type = 2\napple.skin = 3\norange.skin = 4", `{"apple":{"type":1,"skin":3},"orange":{"type":2,"skin":4}}`},
		{"3.14159 = \"pi\"", `{"3":{"14159":"pi"}}`},
		{"true = 1\ninf = 2\n1979-05-27 = 3\n-1 = 4\n- = 5\n_ = 6", `{"true":1,"inf":2,"1979-05-27":3,"-1":4,"-":5,"_":6}`},
		{"a = 1\nA = 2", `{"a":1,"A":2}`},
		// Basic strings.
		{`s = ""`, `{"s":""}`},
		{`s = "I'm a string. \"You can quote me\". Name\tJos\u00E9\nLocation\tSF."`, `{"s":"I'm a string. \"You can quote me\". Name\tJosé\nLocation\tSF."}`},
		{`s = "\b\t\n\f\r\"\\"`, `{"s":"\b\t\n\f\r\"\\"}`},
		{`s = "\u0000\u001f\u007F\uD7FF\uE000\uffff"`, "{\"s\":\"\\u0000\\u001f\x7f\ud7ff\ue000\uffff\"}"},
		{`s = "\U0001F600\U0010ffff\U00000041"`, "{\"s\":\"😀\U0010ffffA\"}"},
		{"s = \"a\tb ü 😀\"", `{"s":"a\tb ü 😀"}`},
		{`s = "# [x] = {"`, `{"s":"# [x] = {"}`},
		{"s = \"\u0080\u009f\ufeff\"", "{\"s\":\"\u0080\u009f\ufeff\"}"},
		{"s = \"\ufffd\"", "{\"s\":\"\ufffd\"}"},
		// Multi-line basic strings.
		{"s = \"\"\"\"\"\"", `{"s":""}`},
		{"s = \"\"\"\nRoses\nViolets\"\"\"", `{"s":"Roses\nViolets"}`},
		{"s = \"\"\"\r\nRoses\r\nViolets\"\"\"", `{"s":"Roses\nViolets"}`},
		{"s = \"\"\"\n\nx\"\"\"", `{"s":"\nx"}`},
		{"s = \"\"\"\nThe quick \\\n\n\n  fox \\\n    jumps.\"\"\"", `{"s":"The quick fox jumps."}`},
		{"s = \"\"\"\\\n   The fox.\\\n   \"\"\"", `{"s":"The fox."}`},
		{"s = \"\"\"a \\  \t \n b\"\"\"", `{"s":"a b"}`},
		{"s = \"\"\"a \\\r\n  \r\n b\"\"\"", `{"s":"a b"}`},
		{"s = \"\"\"Here are two: \"\". Simple.\"\"\"", `{"s":"Here are two: \"\". Simple."}`},
		{"s = \"\"\"three: \"\"\\\".\"\"\"", `{"s":"three: \"\"\"."}`},
		{"s = \"\"\"fifteen: \"\"\\\"\"\"\\\"\"\"\\\".\"\"\"", `{"s":"fifteen: \"\"\"\"\"\"\"\"\"."}`},
		{"s = \"\"\"\"This,\" she said, \"is.\"\"\"\"", `{"s":"\"This,\" she said, \"is.\""}`},
		{"s = \"\"\"a\"\"\"\"\"", `{"s":"a\"\""}`},
		{"s = \"\"\"\"\"a\"\"\"", `{"s":"\"\"a"}`},
		{"s = \"\"\"\"\"\"\"\"", `{"s":"\"\""}`},
		{"s = \"\"\"a\\\\\nb\"\"\"", `{"s":"a\\\nb"}`},
		{"s = \"\"\"a \\u00e9 \\t\"\"\"", `{"s":"a é \t"}`},
		{"s = \"\"\"\n# no comment\n\"\"\"", `{"s":"# no comment\n"}`},
		// Literal strings.
		{`s = 'C:\Users\nodejs\templates'`, `{"s":"C:\\Users\\nodejs\\templates"}`},
		{`s = 'Tom "Dubs" P-W'`, `{"s":"Tom \"Dubs\" P-W"}`},
		{`s = '<\i\c*\s*>'`, `{"s":"\u003c\\i\\c*\\s*\u003e"}`},
		{`s = ''`, `{"s":""}`},
		{"s = '''I [dw]on't need \\d{2} apples'''", `{"s":"I [dw]on't need \\d{2} apples"}`},
		{"s = '''\nThe first newline is\ntrimmed.\n   All other \\\n'''", `{"s":"The first newline is\ntrimmed.\n   All other \\\n"}`},
		{"s = '''''two quotes''inside'''''", `{"s":"''two quotes''inside''"}`},
		{"s = ''''That,' she said.'''", `{"s":"'That,' she said."}`},
		{"s = ''''''", `{"s":""}`},
		// Integers.
		{"a = +99\nb = 42\nc = 0\nd = -17\ne = +0\nf = -0", `{"a":99,"b":42,"c":0,"d":-17,"e":0,"f":0}`},
		{"a = 1_000\nb = 5_349_221\nc = 53_49_221\nd = 1_2_3_4_5", `{"a":1000,"b":5349221,"c":5349221,"d":12345}`},
		{"a = 9223372036854775807\nb = -9223372036854775808", `{"a":9223372036854775807,"b":-9223372036854775808}`},
		// Floats.
		{"a = +1.0\nb = 3.1415\nc = -0.01", `{"a":1f,"b":3.1415f,"c":-0.01f}`},
		{"a = 5e+22\nb = 1e06\nc = -2E-2\nd = 6.626e-34\ne = 1e0_1", `{"a":5e+22f,"b":1e+06f,"c":-0.02f,"d":6.626e-34f,"e":10f}`},
		{"a = 224_617.445_991_228\nb = 0.0\nc = -0.0\nd = 0e0\ne = 1.00", `{"a":224617.445991228f,"b":0f,"c":-0f,"d":0f,"e":1f}`},
		// Booleans.
		{"a = true\nb = false", `{"a":true,"b":false}`},
		// Arrays.
		{"a = []\nb = [ ]\nc = [\n]", `{"a":[],"b":[],"c":[]}`},
		{"a = [ 1, 2, 3 ]\nb = [\"red\",'green',\"\"\"blue\"\"\"]", `{"a":[1,2,3],"b":["red","green","blue"]}`},
		{"a = [ [ 1, 2 ], [\"a\", \"b\"] ]", `{"a":[[1,2],["a","b"]]}`},
		{"a = [ 0.1, 1, \"x\", { b = 1 }, [], true ]", `{"a":[0.1f,1,"x",{"b":1},[],true]}`},
		{"a = [\n  1, # one\n\n  # between\n  2 # two\n  , # comma\n]", `{"a":[1,2]}`},
		{"a = [1,]", `{"a":[1]}`},
		{"a = [\r\n1,\r\n2\r\n]\r\n", `{"a":[1,2]}`},
		{"a = [# at once\n1]", `{"a":[1]}`},
		{"a = [{x=1},{x=2}]", `{"a":[{"x":1},{"x":2}]}`},
		{"a = [\n\"\"\"\nlong\n\"\"\"\n]", `{"a":["long\n"]}`},
		// Tables.
		{"[table]", `{"table":{}}`},
		{"[a]\nk = 1\n[b]\nk = 2", `{"a":{"k":1},"b":{"k":2}}`},
		{"[dog.\"tater.man\"]\ntype.name = \"pug\"", `{"dog":{"tater.man":{"type":{"name":"pug"}}}}`},
		{"[a.b.c]\n[ d.e.f ]\n[ g .  h  . i ]\n[ j . \"ʞ\" . 'l' ]", `{"a":{"b":{"c":{}}},"d":{"e":{"f":{}}},"g":{"h":{"i":{}}},"j":{"ʞ":{"l":{}}}}`},
		{"[x.y.z.w]\n[x]\nk = 1", `{"x":{"y":{"z":{"w":{}}},"k":1}}`},
		{"[fruit.apple]\n[animal]\n[fruit.orange]", `{"fruit":{"apple":{},"orange":{}},"animal":{}}`},
		{"[fruit]\napple.color = 1\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true", `{"fruit":{"apple":{"color":1,"taste":{"sweet":true},"texture":{"smooth":true}}}}`},
		{"top = 1\n[a]\nb = 1\n[a.b2]\nc = 2\n[a.b2.d]\n", `{"top":1,"a":{"b":1,"b2":{"c":2,"d":{}}}}`},
		{"[a.b]\nx = 1\n[a]\ny = 2\n[a.c]", `{"a":{"b":{"x":1},"y":2,"c":{}}}`},
		{"['a.b']\n[a.b]", `{"a.b":{},"a":{"b":{}}}`},
		{"[\"\"]\n[\"\".\"\"]", `{"":{"":{}}}`},
		// Inline tables.
		{"a = {}\nb = { }\nc = {\tx=1\t}", `{"a":{},"b":{},"c":{"x":1}}`},
		{"name = { first = \"Tom\", last = 'P' }\npoint = {x=1, y=2}\nanimal = { type.name = \"pug\" }", `{"name":{"first":"Tom","last":"P"},"point":{"x":1,"y":2},"animal":{"type":{"name":"pug"}}}`},
		{"a = { b.c = 1, b.d = 2, e = { f = [ 1,\n 2 ] } }", `{"a":{"b":{"c":1,"d":2},"e":{"f":[1,2]}}}`},
		{"a = { s = \"\"\"x\ny\"\"\" }", `{"a":{"s":"x\ny"}}`},
		{"a.b = { c = 1 }\na.d = { e.f = 2 }", `{"a":{"b":{"c":1},"d":{"e":{"f":2}}}}`},
		// Arrays of tables.
		{"[[p]]\nname = \"H\"\n\n[[p]]  # empty\n\n[[p]]\nname = \"N\"", `{"p":[{"name":"H"},{},{"name":"N"}]}`},
		{"[[f]]\nn = 1\n[f.physical]\nc = 1\n[[f.v]]\nn = 2\n[[f.v]]\nn = 3\n[[f]]\nn = 4\n[[f.v]]\nn = 5", `{"f":[{"n":1,"physical":{"c":1},"v":[{"n":2},{"n":3}]},{"n":4,"v":[{"n":5}]}]}`},
		{"[[a.b]]\nx = 1\n[a]\ny = 2", `{"a":{"b":[{"x":1}],"y":2}}`},
		{"[[a]]\n[a.b.c]\n[[a]]\n[a.b.c]", `{"a":[{"b":{"c":{}}},{"b":{"c":{}}}]}`},
		{"[[ a . 'b' ]]\nx.y = 1", `{"a":{"b":[{"x":{"y":1}}]}}`},
		{"points = [ { x = 1 },\n { x = 7 } ]", `{"points":[{"x":1},{"x":7}]}`},
		{"[[a]]\nb.c = 1\n[a.b.d]\nx = 1", `{"a":[{"b":{"c":1,"d":{"x":1}}}]}`},
		// A file as people have it.
		{"[core]\ndefault_team = \"my-team\"\nidentity = \"team-lead\"\n\n[aliases]\n\"arch\" = \"arch-ctm\"\n\n[plugins.atm-agent-mcp]\nmodel = \"o3\" # pinned\nmail_poll_interval_ms = 5_000\nper_thread_auto_mail = { \"codex:ab12\" = false }\n\n[plugins.atm-agent-mcp.roles.architect]\nsandbox = \"read-only\"\n\n[[hooks]]\nmatch = ['a', 'b']\n",
			`{"core":{"default_team":"my-team","identity":"team-lead"},"aliases":{"arch":"arch-ctm"},"plugins":{"atm-agent-mcp":{"model":"o3","mail_poll_interval_ms":5000,"per_thread_auto_mail":{"codex:ab12":false},"roles":{"architect":{"sandbox":"read-only"}}}},"hooks":[{"match":["a","b"]}]}`},
	}
}

// tomlInvalidDocs are invalid documents by a part of the error that they must get, position included.
func tomlInvalidDocs() map[string][]string {
	return map[string][]string{
		"1:6: byte 0xFF is not UTF-8":   {"a = \"\xff\""},
		"1:6: byte 0xED":                {"a = '\xed\xa0\x80'"},
		"1:6: byte 0xF4":                {"a = '\xf4\x90\x80\x80'"},
		"1:6: byte 0x80":                {"ü = '\x80'"},
		"1:1: byte 0xFF":                {"\xff\xfea"},
		"1:6: control character U+0000": {"a = 1\x00"},
		"1:3: control character U+0000": {"# \x00"},
		"U+007F":                        {"# \x7f"},
		"1:6: control character U+0008": {"a = \"\x08\""},
		"U+001B":                        {"a = '''\x1b'''"},
		"1:6: a carriage return":        {"a = 1\rb = 2"},
		"a carriage return":             {"a = \"\"\"x\ry\"\"\""},
		"2:1: a carriage return":        {"a = 1\n\r\r\n"},
		`1:5: "1\ufeff" is no number`:   {"a = 1\ufeff"},
		"1:1: a key is wanted":          {"\ufeff\ufeffa = 1"},
		"wants \"=\" here":              {"a\u00a0= 1"},
		"is no value":                   {"a =\u00a01", "a = Inf", "a = nan", "a = NaN", "a = tru", "a = true1", "a = yes", "a = null"},
		"1:7: the line should end here, but 'b' follows":                            {"a = 1 b = 2"},
		"1:9: the line should end here":                                             {"a = \"x\" y"},
		"1:5: the line should end here":                                             {"[a] b = 1"},
		"the line should end here":                                                  {"a = [1] ]", `a = 'it's'`, "a = '''x''''''", "a = true false", "[a]]"},
		"1:2: key \"a\" wants \"=\" here, not the end of the file":                  {"a"},
		"1:2: key \"a\" wants \"=\" here, not the end of the line":                  {"a\n= 1"},
		"1:4: a value is wanted here, not the end of the file":                      {"a ="},
		"1:4: a value is wanted here, not the end of the line":                      {"a =\n1"},
		"a value is wanted here, not '#'":                                           {"a = # 1"},
		"1:1: a key is wanted here, not '='":                                        {"= 1"},
		"a key is wanted here, not '.'":                                             {".a = 1"},
		"a key is wanted here":                                                      {"a. = 1"},
		"1:3: a key is wanted here, not '.'":                                        {"a..b = 1"},
		"a value is wanted here, not '='":                                           {"a == 1"},
		"1:1: a key is wanted here, not 'ʎ'":                                        {"ʎ = 1"},
		"not '!'":                                                                   {"a! = 1"},
		"1:1: the string that begins here is not closed before the end of the file": {"\"a = 1"},
		"1:1: the string that begins here is not closed before the end of the line": {"'a\nb' = 1"},
		"wants \"=\" here, not '\"'":                                                {"\"\"\"a\"\"\" = 1"},
		"no escape of TOML 1.0":                                                     {"\"\\x\" = 1", `a = "\x41"`, `a = "\0"`, `a = "\'"`, "a = \"x\\\ny\""},
		"2:1: key \"a\" is already set at line 1":                                   {"a = 1\na = 2", "a = 1\n'a' = 2"},
		"is already set at line 1":                                                  {"a = 1\n\"\\u0061\" = 2"},
		"2:3: key \"b\" is already set at line 1":                                   {"a.b = 1\na.b = 2"},
		"2:1: key \"a\" is already set at line 1 and is an integer":                 {"a = 1\na.b = 2"},
		"key \"a\" is already set":                                                  {"a.b = 1\na = 2"},
		"1:5: the string that begins here is not closed":                            {`a = "x`},
		"1:5: the string that begins here is not closed before the end of the line": {"a = \"x\ny\"", "a = 'x\ny'"},
		"1:5: the string that begins here is not closed before the end of the file": {"a = \"\"\"x\"\""},
		"is not closed before the end of the file":                                  {"a = '''x''"},
		"the line should end here, but '\"' follows":                                {"a = \"\"\"x\"\"\"\"\"\""},
		"1:6: 'a' after a backslash":                                                {`a = "\a"`},
		"' ' after a backslash":                                                     {"a = \"\"\"x \\ y\"\"\""},
		"the end of the file after a backslash":                                     {`a = "\`},
		"\\U wants 8 hexadecimal digits":                                            {`a = "C:\Users"`},
		"\\u wants 4":                                                               {`a = "\u12G4"`, `a = "\u`},
		"\\U wants 8":                                                               {`a = "\U0001F60"`},
		"U+D800 is no character":                                                    {`a = "\uD800"`, `a = "\U0000D800"`},
		"U+110000 is no character":                                                  {`a = "\U00110000"`},
		"U+D800":                                                                    {"a = \"\"\"\\uD800\"\"\""},
		"is no value: text is written in quotes":                                    {"a = \u201cx\u201d", "a = `x`"},
		"1:5: \"01\" is no number":                                                  {"a = 01"},
		"is no number that this program reads": {
			"a = -01", "a = +007", "a = 00", "a = 1_", "a = _1", "a = 1__0", "a = +-1", "a = ++1", "a = -", "a = 0X1",
			"a = 0O7", "a = 0B1", "a = 1a", "a = .7", "a = 7.", "a = 3.e+20", "a = +.5", "a = 03.14", "a = 1.2.3",
			"a = 1._2", "a = 1_.2", "a = 1.2_", "a = 1e", "a = 1e_1", "a = 1e+", "a = 1e1.5", "a = -inf", "a = -Nan",
			"a = [1)",
		},
		"the line should end here, but ',' follows":                                    {"a = 1,000"},
		"does not fit into 64 bits":                                                    {"a = 9223372036854775808", "a = -9223372036854775809", "a = 1e400"},
		"1:5: 1979-05-27T07:32:00Z is a date or time, which this program doesn't read": {"a = 1979-05-27T07:32:00Z"},
		"2:2: 07:32:00 is a date or time":                                              {"a = [\n 07:32:00 ]"},
		"1:5: \"0x1F\" is no number that this program reads":                           {"a = 0x1F"},
		"\"True\" is no value: text is written in quotes":                              {"a = True"},
		"\"workspace-write\" is no value: text is written in quotes":                   {"a = workspace-write"},
		"1:5: the array that begins here is never closed":                              {"a = [", "a = [1", "a = [1,"},
		"the array that begins here is never closed":                                   {"a = [1 # ]"},
		"a value is wanted here, not ','":                                              {"a = [,]"},
		"1:8: a value is wanted here, not ','":                                         {"a = [1,,2]"},
		"1:8: the array wants \",\" or \"]\" here, not '2'":                            {"a = [1 2]"},
		"2:1: the array wants":                                                         {"a = [1\n2]"},
		"\"b\" is no value":                                                            {"a = [b = 1]"},
		"a value is wanted here, not ']'":                                              {"a = ]"},
		"is not closed":                                                                {"a = [\"x]"},
		"the array wants \",\" or \"]\" here, not '['":                                 {"a = [1\n[b]\n"},
		"1:6: a key is wanted here, not the end of the file":                           {"a = {"},
		"here, not the end of the file":                                                {"a = { b = 1"},
		"1:14: an inline table has no comma before its \"}\" in TOML 1.0":              {"a = { b = 1, }"},
		"a key is wanted here, not ','":                                                {"a = { b = 1,, c = 2 }"},
		"wants \",\" or \"}\" here, not 'c'":                                           {"a = { b = 1 c = 2 }"},
		"1:6: a key is wanted here, not the end of the line":                           {"a = {\nb = 1 }"},
		"stands on one line":                                                           {"a = { b = 1\n}"},
		"a key is wanted here, not '#'":                                                {"a = { b = 1, # x\n c = 2 }"},
		"wants \"=\"":                                                                  {"a = { b }"},
		"a value is wanted here, not '}'":                                              {"a = { b = }"},
		"1:14: key \"b\" is already set at line 1":                                     {"a = { b = 1, b = 2 }"},
		"is already set at line 1 and is an integer":                                   {"a = { b = 1, b.c = 2 }"},
		"an inline table, which is complete where it closes":                           {"a = { b = {}, b.c = 1 }"},
		"2:1: key \"a\" is already set at line 1 and is an inline table":               {"a = { b = 1 }\na.c = 2"},
		"2:2: key \"a\" is already set at line 1 and is an inline table":               {"a = { b = 1 }\n[a]"},
		"is an inline table":                                                           {"a = { b = 1 }\n[a.c]", "a = { b = {} }\n[a.b.c]"},
		"3:4: key \"a\" is already set at line 2 and is an inline table":               {"[t]\na = {}\n[t.a.b]"},
		"1:3: the table header wants \"]\" here, not the end of the file":              {"[a"},
		"wants \"]\" here, not the end of the line":                                    {"[a\n]"},
		"a key is wanted here, not ']'":                                                {"[]"},
		"a key is wanted":                                                              {"[a.]", "[[]]"},
		"wants \"]\" here, not 'b'":                                                    {"[a b]"},
		"a key is wanted here, not '['":                                                {"[ [a] ]"},
		"wants \"]]\" here":                                                            {"[[a] ]", "[[a]"},
		"wants \"]\"":                                                                  {"[\"\"\"a\"\"\"]"},
		"2:2: table \"a\" is already defined at line 1":                                {"[a]\n[a]"},
		"4:2: table \"a\" is already defined at line 1":                                {"[a]\nb = 1\n[c]\n[a]\nd = 2"},
		"table \"b\" is already defined at line 1":                                     {"[a.b]\n[a]\n[a.b]"},
		"3:4: key \"b\" is already set at line 2 and is an integer":                    {"[a]\nb = 1\n[a.b]"},
		"and is an integer":                                                            {"[a]\nb = 1\n[a.b.c]", "a = 1\n[a]", "a = 1\n[a.b]", "f = 1\n[[f]]"},
		"table \"a\" is already defined at line 1":                                     {"a.b = 1\n[a]"},
		"3:8: table \"apple\" is already defined at line 2":                            {"[fruit]\napple.color = 1\n[fruit.apple]"},
		"table \"taste\" is already defined":                                           {"[fruit]\napple.taste.sweet = true\n[fruit.apple.taste]"},
		"4:3: table \"c\" has its own header at line 1":                                {"[a.b.c]\nz = 9\n[a]\nb.c.t = 1"},
		"key \"b\" is already set at line 1":                                           {"[a.b]\n[a]\nb = 1"},
		"table \"b\" has its own header at line 1":                                     {"[a.b]\n[a]\nb.c = 1"},
		"table \"b\" is already defined":                                               {"[a.b.c]\n[a]\nb.x = 1\n[a.b]"},
		"2:3: key \"f\" is already set at line 1 and is an array of values":            {"f = []\n[[f]]"},
		"an array of values":                                                           {"f = [{}]\n[[f]]", "f = [{}]\n[f.x]"},
		"2:3: key \"f\" is already set at line 1 and is a table":                       {"[f.p]\n[[f]]"},
		"an array of tables, written [[f]]":                                            {"[[f]]\n[f]"},
		"3:4: key \"v\" is already set at line 2 and is an array of tables":            {"[[f]]\n[[f.v]]\n[f.v]"},
		"an array of tables":                                                           {"[[a.b]]\n[a]\nb.c = 1"},
		"key \"b\" is already set":                                                     {"[[a.b]]\n[a]\nb = 1"},
		"and is a table":                                                               {"[a]\nb.c = 1\n[[a.b]]"},
		"table \"b\" is already defined at line 2":                                     {"[[a]]\n[a.b]\n[a.b]"},
		"nested deeper than 64": {
			"a = " + strings.Repeat("[", 65) + strings.Repeat("]", 65),
			"a = " + strings.Repeat("{a=", 65) + "1" + strings.Repeat("}", 65),
			"a = " + strings.Repeat("[", 1_000_000),
		},
		"at most 64 parts": {strings.Repeat("a.", 64) + "a = 1", "[" + strings.Repeat("a.", 64) + "a]"},
	}
}

func TestTOMLValid(t *testing.T) {
	for _, d := range tomlValidDocs() {
		tab, err := parseTOML("x.toml", []byte(d[0]))
		if err != nil {
			t.Errorf("%q\n refused: %v", d[0], err)
			continue
		}
		if got := showTOMLTable(tab); got != d[1] {
			t.Errorf("%q\n got %s\nwant %s", d[0], got, d[1])
		}
		// What is true of the document is true of it with the other newline, and with comments on every line.
		crlf := strings.ReplaceAll(strings.ReplaceAll(d[0], "\r\n", "\n"), "\n", "\r\n")
		if tab, err = parseTOML("x.toml", []byte(crlf)); err != nil || showTOMLTable(tab) != d[1] {
			t.Errorf("%q\n differs: %v", crlf, err)
		}
	}
}

func TestTOMLInvalid(t *testing.T) {
	for want, docs := range tomlInvalidDocs() {
		for _, doc := range docs {
			tab, err := parseTOML("x.toml", []byte(doc))
			if err == nil {
				t.Errorf("%s\n was accepted as %s", cutName(doc), showTOMLTable(tab))
			} else if !strings.HasPrefix(err.Error(), "x.toml:") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\n got %v\nwant …%s…", cutName(doc), err, want)
			}
		}
	}
}

func TestTOMLPositions(t *testing.T) {
	tab, err := parseTOML("x", []byte("\ufefftop = 'ü' \n[a . \"é\"]\n  k.m = [ 1,\n 'ö', {x=2}]\n[[l]]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v    *tomlValue
		want string
	}{
		{tab.get("top"), "1:7 1:1"},
		{tab.at("a"), "2:2 2:2"},
		{tab.at("a", "é"), "2:6 2:6"},
		{tab.at("a", "é", "k"), "3:3 3:3"},
		{tab.at("a", "é", "k", "m"), "3:9 3:5"},
		{tab.at("a", "é", "k", "m").arr[0], "3:11 0:0"},
		{tab.at("a", "é", "k", "m").arr[1], "4:2 0:0"},
		{tab.at("a", "é", "k", "m").arr[2], "4:7 0:0"},
		{tab.at("a", "é", "k", "m").arr[2].tab.get("x"), "4:10 4:8"},
		{tab.get("l"), "5:3 5:3"},
	} {
		if got := fmt.Sprintf("%d:%d %d:%d", c.v.line, c.v.col, c.v.keyLine, c.v.keyCol); got != c.want {
			t.Errorf("%s: at %s, want %s", showTOML(c.v), got, c.want)
		}
	}
}

func TestTOMLLookup(t *testing.T) {
	tab, err := parseTOML("x", []byte("b = 1\na.c.d = 'x'\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tab.keys(), " "); got != "b a" {
		t.Errorf("keys %q, want the order of the document", got)
	}
	if v := tab.at("a", "c", "d"); v == nil || v.str != "x" {
		t.Errorf("a.c.d = %v", v)
	}
	for _, path := range [][]string{{"z"}, {"z", "y"}, {"b", "x"}, {"a", "c", "d", "e"}, {}} {
		if v := tab.at(path...); v != nil {
			t.Errorf("at(%q) = %s, want nothing", path, showTOML(v))
		}
	}
	if got := tab.table("b"); got != nil {
		t.Error("an integer was taken for a table")
	}
	if got := tab.table("a", "c").keys(); len(got) != 1 || got[0] != "d" {
		t.Errorf("table(a, c) has %q", got)
	}
	if tab.table() != tab || tab.table("no").get("x") != nil || tab.table("no").keys() != nil {
		t.Error("a missing table should be an empty one")
	}
}

func TestTOMLPlainIsJSON(t *testing.T) {
	tab, err := parseTOML("x", []byte("s = 'x'\ni = 9007199254740993\nf = 1.5\nb = true\nl = [1, {a = 2}]\n[t.u]\n[[q]]\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(tab.plain())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"b":true,"f":1.5,"i":9007199254740993,"l":[1,{"a":2}],"q":[{}],"s":"x","t":{"u":{}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A megabyte on one line is read in a moment: positions are counted once, not per value.
func TestTOMLLongLine(t *testing.T) {
	doc := "a = [" + strings.Repeat("1,", 500_000) + "é]"
	_, err := parseTOML("x", []byte(doc))
	if err == nil || !strings.HasPrefix(err.Error(), "x:1:1000006: ") {
		t.Errorf("got %v", err)
	}
}

func FuzzTOML(f *testing.F) {
	for _, d := range tomlValidDocs() {
		f.Add([]byte(d[0]))
	}
	for _, docs := range tomlInvalidDocs() {
		for _, doc := range docs {
			if len(doc) < 1000 {
				f.Add([]byte(doc))
			}
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		tab, err := parseTOML("x", doc)
		again, err2 := parseTOML("x", doc)
		if fmt.Sprint(err) != fmt.Sprint(err2) {
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
		if !utf8.Valid(doc) {
			t.Fatal("accepted bytes that are not UTF-8")
		}
		if showTOMLTable(tab) != showTOMLTable(again) {
			t.Fatal("two readings differ")
		}
		if _, err := json.Marshal(tab.plain()); err != nil {
			t.Fatalf("plain is not JSON: %v", err)
		}
		var walk func(v *tomlValue)
		walk = func(v *tomlValue) {
			inside(v.line, v.col)
			if v.keyLine != 0 {
				inside(v.keyLine, v.keyCol)
			}
			if v.kind == tomlFloat && math.IsInf(v.f, 0) && !strings.Contains(string(doc), "inf") {
				t.Fatal("a number became infinite")
			}
			for _, e := range v.arr {
				walk(e)
			}
			for _, k := range v.tab.keys() {
				walk(v.tab.get(k))
			}
		}
		for _, k := range tab.keys() {
			walk(tab.get(k))
		}
	})
}
