// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The parsers call themselves for every level, and a stack that is full ends the process: no recover helps. So depth is
// checked before anything is parsed.
const (
	mostNesting = 256
	// mostChain bounds what is not deep to look at, but is to evaluate: operators, indexes and brackets in one expression.
	mostChain = 100_000
	// MostSource is the largest source in bytes.
	MostSource = 4 << 20
)

// Syntax is how a source is written.
type Syntax uint8

// The syntaxes.
const (
	Native   Syntax = iota // blocks and arguments, or one expression
	JSON                   // the same data model as JSON
	Template               // text with ${ } and %{ }
)

// SyntaxOf tells the syntax of a configuration file by its name.
func SyntaxOf(filename string) Syntax {
	if strings.HasSuffix(filename, ".json") {
		return JSON
	}
	return Native
}

// checkDepth refuses a source that is nested too deeply to be parsed.
func checkDepth(filename string, src []byte, syntax Syntax) *Diagnostic {
	if !mayBeDeep(src) {
		return nil
	}
	switch syntax {
	case JSON:
		return checkJSON(filename, src)
	case Template:
		tokens, _ := hclsyntax.LexTemplate(src, filename, hcl.InitialPos)
		return checkTokens(tokens)
	default:
		tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos)
		return checkTokens(tokens)
	}
}

// mayBeDeep is a cheap look that ordinary files pass: it takes brackets in texts and comments for real ones.
func mayBeDeep(src []byte) bool {
	depth, most, chain := 0, 0, 0
	for _, c := range src {
		switch c {
		case '{', '[', '(':
			depth++
			most = max(most, depth)
		case '}', ']', ')':
			depth = max(0, depth-1)
		case '!', '?', '+', '*', '/', '%', '&', '|', '=', '<', '>', '-':
			chain++
		}
	}
	// Texts nest without brackets of their own only as "${"…"}", which has one.
	return most > mostNesting/2 || chain > mostNesting
}

func checkTokens(tokens hclsyntax.Tokens) *Diagnostic {
	depth, run, questions, chain := 0, 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp,
			hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
			chain++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd,
			hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth = max(0, depth-1)
		case hclsyntax.TokenQuestion:
			questions++
		case hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent, hclsyntax.TokenAnd,
			hclsyntax.TokenOr, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenDot:
			chain++
		case hclsyntax.TokenNewline:
			if depth <= 1 {
				questions, chain = 0, 0
			}
		default: // deepens nothing
		}
		if t.Type == hclsyntax.TokenBang || t.Type == hclsyntax.TokenMinus {
			run++
			chain++
		} else {
			run = 0
		}
		if depth > mostNesting || run > mostNesting || questions > mostNesting || chain > mostChain {
			return tooDeep(t.Range)
		}
	}
	return checkControls(tokens)
}

// checkControls counts the if and for directives of templates that are open.
func checkControls(tokens hclsyntax.Tokens) *Diagnostic {
	depth := 0
	for i, t := range tokens {
		if t.Type != hclsyntax.TokenIdent || i == 0 || tokens[i-1].Type != hclsyntax.TokenTemplateControl {
			continue
		}
		switch string(t.Bytes) {
		case "if", "for":
			depth++
		case "endif", "endfor":
			depth = max(0, depth-1)
		}
		if depth > mostNesting {
			return tooDeep(t.Range)
		}
	}
	return nil
}

func tooDeep(r hcl.Range) *Diagnostic {
	return Errorf(UnexpectedToken, r, "nested too deeply").
		Labelf("at most %d levels, and %d operators in an expression, can be read", mostNesting, mostChain)
}

// checkJSON follows the brackets outside of strings, and the strings as templates.
func checkJSON(filename string, src []byte) *Diagnostic {
	depth := 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '{', '[':
			if depth++; depth > mostNesting {
				return tooDeep(byteRange(filename, src, i, i+1))
			}
		case '}', ']':
			depth = max(0, depth-1)
		case '"':
			end := i + 1
			for end < len(src) && src[end] != '"' {
				if src[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(src))
			if text := src[i+1 : end]; mayBeDeep(text) && (bytes.Contains(text, []byte("${")) || bytes.Contains(text, []byte("%{"))) {
				tokens, _ := hclsyntax.LexTemplate(text, filename, hcl.InitialPos)
				if checkTokens(tokens) != nil {
					return tooDeep(byteRange(filename, src, i, end))
				}
			}
			i = end
		}
	}
	return nil
}

// byteRange gives a range with lines and columns.
func byteRange(filename string, src []byte, from, to int) hcl.Range {
	pos := func(at int) hcl.Pos {
		start := lineStart(src, at)
		return hcl.Pos{
			Line:   bytes.Count(src[:at], []byte{'\n'}) + 1,
			Column: len(cells(string(src[start:at]))) + 1,
			Byte:   at,
		}
	}
	to = min(to, len(src))
	return hcl.Range{Filename: filename, Start: pos(from), End: pos(to)}
}
