package main

// wire_args.go owns the schemas of tools: how arguments are described to a model and a call's are checked against that
// description, and how a result is described, from the struct that it is written from. It serves the tools of an MCP
// client and those of the Codex agents themselves (mcp_tools.go, mail_tools.go). It must never guess: an argument that
// nobody described is an error which names the nearest one.

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// toolHints are honest: Claude Code runs tools in parallel that only read, and asks its user about those that destroy.
type toolHints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// argSpec is one argument: its schema and its check come from the same line.
type argSpec struct {
	name     string
	kind     string // string, object, number, integer, boolean, "boolean or string", array (of strings)
	text     string
	enum     []string
	min, max float64 // of a number or integer, or of an array's length, where max isn't 0
	above    bool    // min itself is refused
	old      bool    // an older name, taken from callers who know it and not shown to others
}

// toolArgs are the checked arguments of one call; null counts as left out.
type toolArgs map[string]json.RawMessage

func (a toolArgs) has(name string) bool { return a[name] != nil }

// str is a string argument, "" where it was left out.
func (a toolArgs) str(name string) string {
	s, _ := rawString(a[name])
	return s
}

func (a toolArgs) num(name string) float64 {
	n, _ := strconv.ParseFloat(string(a[name]), 64)
	return n
}

// yes is a boolean argument, false where it was left out.
func (a toolArgs) yes(name string) bool { return rawKind(a[name]) == 't' }

// secs is an argument in seconds.
func (a toolArgs) secs(name string) time.Duration {
	return time.Duration(a.num(name) * float64(time.Second))
}

// decodeArgs checks arguments against the table. What is wrong here is wrong with the protocol in both eras: -32602.
func decodeArgs(tool string, specs []argSpec, raw json.RawMessage) (toolArgs, *rpcError) {
	args := toolArgs{}
	if isNull(raw) {
		return args, nil
	}
	var bad *rpcError
	err := eachField(raw, func(key string, val json.RawMessage) bool {
		i := slices.IndexFunc(specs, func(a argSpec) bool { return a.name == key })
		if i < 0 {
			var names []string
			for _, a := range specs {
				if !a.old {
					names = append(names, a.name)
				}
			}
			known := "it takes none"
			if len(names) > 0 {
				known = "it takes " + strings.Join(names, ", ")
			}
			bad = badParams("tool %s has no argument %q (%s)%s", tool, key, known, didYouMean(key, names))
			return false
		}
		if isNull(val) {
			delete(args, key)
			return true
		}
		if want := specs[i].wrong(val); want != "" {
			word, _ := rawString(val)
			bad = badParams("argument %q of tool %s must be %s, not %s%s", key, tool, want, clipChars(string(val), 80),
				didYouMean(word, specs[i].enum))
			return false
		}
		args[key] = val
		return true
	})
	if err != nil {
		return nil, badParams("arguments of tool %s must be an object", tool)
	}
	return args, bad
}

// wrong says what the value should have been, "" if it is right.
func (a *argSpec) wrong(val json.RawMessage) string {
	if a.enum != nil {
		if s, ok := rawString(val); !ok || !slices.Contains(a.enum, s) {
			return "one of " + strings.Join(a.enum, ", ")
		}
		return ""
	}
	is := func(kinds, want string) string { // a string is decoded once, by who takes it: it may be a long prompt
		if strings.IndexByte(kinds, rawKind(val)) >= 0 {
			return ""
		}
		return want
	}
	switch a.kind {
	case "string":
		return is(`"`, "a string")
	case "object":
		return is("{", "an object")
	case "boolean":
		return is("tf", "true or false")
	case "boolean or string":
		return is(`tf"`, "true, false or a string")
	case "array":
		n, bad := 0.0, rawKind(val) != '['
		eachElement(val, func(each json.RawMessage) {
			n++
			bad = bad || rawKind(each) != '"'
		})
		if bad || n < a.min || n > a.max {
			return fmt.Sprintf("an array of %v to %v strings", a.min, a.max)
		}
	case "number", "integer":
		want := fmt.Sprintf("a number from %v to %v", a.min, a.max)
		if a.above {
			want = fmt.Sprintf("a number over %v and at most %v", a.min, a.max)
		}
		if a.kind == "integer" {
			want = "a whole " + strings.TrimPrefix(want, "a ")
		}
		n, err := strconv.ParseFloat(string(val), 64)
		if rawKind(val) != '0' || err != nil || n > a.max || n < a.min || a.above && n == a.min ||
			a.kind == "integer" && n != math.Trunc(n) {
			return want
		}
	}
	return ""
}

// invalidSession is a call that is well formed and makes no sense (NFR-6).
func invalidSession(format string, args ...any) *rpcError {
	return proxyError(codeInvalidSession, fmt.Sprintf(format, args...))
}

// valueSchema is the JSON Schema of an argument, or of a value in a result.
type valueSchema struct {
	Type       string          `json:"type,omitempty"`
	AnyOf      []valueSchema   `json:"anyOf,omitempty"`
	Text       string          `json:"description,omitempty"`
	Enum       []string        `json:"enum,omitempty"`
	Min        *float64        `json:"minimum,omitempty"`
	Above      *float64        `json:"exclusiveMinimum,omitempty"`
	Max        float64         `json:"maximum,omitempty"`
	Items      *valueSchema    `json:"items,omitempty"`
	MinItems   float64         `json:"minItems,omitempty"`
	MaxItems   float64         `json:"maxItems,omitempty"`
	Properties json.RawMessage `json:"properties,omitempty"` // in the order of the struct, which a Go map would lose
	Required   []string        `json:"required,omitempty"`
	Extra      any             `json:"additionalProperties,omitempty"` // true, or the schema of the values
}

// argsSchema writes the arguments in the table's order, and takes no others.
func argsSchema(specs []argSpec, required []string) json.RawMessage {
	props := []byte{'{'}
	for _, a := range specs {
		if a.old {
			continue
		}
		s := valueSchema{Type: a.kind, Text: a.text, Enum: a.enum}
		switch {
		case a.kind == "object":
			s.Extra = true
		case a.kind == "boolean or string":
			s.Type, s.AnyOf = "", []valueSchema{{Type: "boolean"}, {Type: "string"}}
		case a.kind == "array":
			s.Items, s.MinItems, s.MaxItems = &valueSchema{Type: "string"}, a.min, a.max
		case a.max != 0 && a.above:
			s.Above, s.Max = &a.min, a.max
		case a.max != 0:
			s.Min, s.Max = &a.min, a.max
		}
		props = appendProperty(props, a.name, s)
	}
	return toJSON(valueSchema{Type: "object", Properties: append(props, '}'), Required: required, Extra: false})
}

// resultSchema makes the schema of a tool's result from the structs that it is
// made of: their json tags name the properties. Of its own properties the doc tags
// say what they mean; inside of those they don't, since no model is shown the schema
// of a result, and the list of tools would be half as long again. It
// names no required property: a modern client's error has none but error, and a
// client that checks refuses a result that breaks its schema.
func resultSchema(parts ...any) json.RawMessage {
	props := []byte{'{'}
	for _, part := range parts {
		props = appendProperties(props, reflect.TypeOf(part), 0)
	}
	return toJSON(valueSchema{Type: "object", Properties: append(props, '}')})
}

// appendProperties adds the fields of a struct, and those of the structs that it
// embeds.
func appendProperties(props []byte, t reflect.Type, depth int) []byte {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		s := typeSchema(f.Type, depth)
		if options != "omitempty" && f.Type.Kind() == reflect.Pointer { // null says that there is none
			s = valueSchema{AnyOf: []valueSchema{s, {Type: "null"}}}
		}
		if depth == 0 {
			s.Text = f.Tag.Get("doc")
		}
		props = appendProperty(props, name, s)
	}
	return props
}

func appendProperty(props []byte, name string, s valueSchema) []byte {
	if len(props) > 1 {
		props = append(props, ',')
	}
	return append(append(appendJSONString(props, name), ':'), toJSON(s)...)
}

// typeSchema is the schema of a field's type; depth is how many objects the field lies in within the result. What lies
// deeper than two is not spelled out: a client gets the whole list of tools at each start.
func typeSchema(t reflect.Type, depth int) valueSchema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return valueSchema{Type: "string"}
	case reflect.TypeFor[json.RawMessage](): // any value
		return valueSchema{}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) { // it writes more than its fields
		return valueSchema{Type: "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem(), depth)
	case reflect.String:
		return valueSchema{Type: "string"}
	case reflect.Bool:
		return valueSchema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return valueSchema{Type: "integer"}
	case reflect.Float64:
		return valueSchema{Type: "number"}
	case reflect.Slice:
		items := typeSchema(t.Elem(), depth)
		return valueSchema{Type: "array", Items: &items}
	case reflect.Map:
		return valueSchema{Type: "object", Extra: typeSchema(t.Elem(), depth)}
	case reflect.Struct:
		if depth > 1 {
			return valueSchema{Type: "object"}
		}
		return valueSchema{Type: "object", Properties: append(appendProperties([]byte{'{'}, t, depth+1), '}')}
	}
	panic("BUG: a result has a field of type " + t.String())
}

// badParams is a call that breaks the protocol or a tool's own description.
func badParams(format string, args ...any) *rpcError {
	return &rpcError{Code: codeInvalidParams, Message: "Invalid params: " + fmt.Sprintf(format, args...)}
}
