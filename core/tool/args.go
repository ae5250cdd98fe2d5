// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Codes of failures that any tool can have.
const (
	CodeArguments = "invalid_arguments"
	CodeCanceled  = "canceled"
)

// DecodeArguments reads a function call's JSON arguments into a struct. Unknown members are ignored, as models add
// some; null means absent. What is wrong is said by argument.
func DecodeArguments(arguments string, into any) *Error {
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
	}
	bad := func(format string, args ...any) *Error {
		return &Error{
			Code: CodeArguments, Message: fmt.Sprintf(format, args...), Retryable: true,
			Hint: "call again with one JSON object that fits the tool's parameters",
		}
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(arguments)))
	err := dec.Decode(into)
	var typ *json.UnmarshalTypeError
	var syn *json.SyntaxError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		return bad("the arguments are %s, a JSON object is needed", withArticle(typ.Value))
	case errors.As(err, &typ):
		return bad("argument %q is %s, %s is needed", typ.Field, withArticle(typ.Value), withArticle(jsonName(typ.Type.Kind().String())))
	case errors.As(err, &syn):
		return bad("the arguments are not valid JSON: %v at byte %d", syn, syn.Offset)
	case err != nil:
		return bad("the arguments are not valid JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the JSON object of the arguments")
	}
	return nil
}

// Misfit is the answer to arguments that are JSON and do not fit the tool's schema.
func Misfit(err error) *Error {
	return &Error{
		Code: CodeArguments, Message: "the arguments do not fit the tool's parameters: " + err.Error(), Retryable: true,
		Hint: "call again with arguments that fit",
	}
}

func jsonName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "whole number"
	case strings.HasPrefix(kind, "float"):
		return "number"
	case kind == "bool":
		return "boolean"
	case kind == "slice":
		return "array"
	case kind == "struct", kind == "map":
		return "object"
	}
	return kind
}

func withArticle(s string) string {
	if s != "" && strings.ContainsRune("aeiou", rune(s[0])) {
		return "an " + s
	}
	return "a " + s
}
