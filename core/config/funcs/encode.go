// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"crypto/md5"  //nolint:gosec // a checksum that users ask for by name
	"crypto/sha1" //nolint:gosec // what version 5 of the UUID is made with
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

var base64EncodeFunc = onText("Encodes a text in Base64.", func(s string) (string, error) {
	return base64.StdEncoding.EncodeToString([]byte(s)), nil
})

var base64DecodeFunc = onText("Decodes Base64 that holds text.", func(s string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", errors.New("not valid Base64")
	}
	if !utf8.Valid(b) {
		return "", errors.New("what is encoded is not UTF-8 text")
	}
	return string(b), nil
})

var urlEncodeFunc = onText("Encodes a text for a URL's query.", func(s string) (string, error) {
	return url.QueryEscape(s), nil
})

var textEncodeBase64Func = function.New(&function.Spec{
	Description: "Encodes a text in a character encoding and then in Base64.",
	Params:      []function.Parameter{text("str"), text("encoding")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		known := map[string]encoding.Encoding{
			"UTF-8":        unicode.UTF8,
			"UTF-16LE":     unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
			"UTF-16BE":     unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
			"ISO-8859-1":   charmap.ISO8859_1,
			"WINDOWS-1252": charmap.Windows1252,
		}
		e := known[strings.ToUpper(args[1].AsString())]
		if e == nil {
			return cty.NilVal, function.NewArgErrorf(1, "must be UTF-8, UTF-16LE, UTF-16BE, ISO-8859-1 or windows-1252")
		}
		b, err := e.NewEncoder().String(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "has a character that the encoding does not have")
		}
		return cty.StringVal(base64.StdEncoding.EncodeToString([]byte(b))), nil
	},
})

var (
	md5Func    = sumOf("MD5", md5.New)
	sha256Func = sumOf("SHA-256", sha256.New)
	sha512Func = sumOf("SHA-512", sha512.New)
)

func sumOf(name string, make func() hash.Hash) function.Function {
	return onText("Gives the "+name+" sum of a text in hexadecimal.", func(s string) (string, error) {
		h := make()
		h.Write([]byte(s))
		return hex.EncodeToString(h.Sum(nil)), nil
	})
}

var uuidV5Func = function.New(&function.Spec{
	Description: "Gives the UUID, version 5, of a name in a namespace: dns, url, oid, x500 or a UUID.",
	Params:      []function.Parameter{text("namespace"), text("name")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		space, err := namespace(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		h := sha1.New() //nolint:gosec // see above
		h.Write(space)
		h.Write([]byte(args[1].AsString()))
		u := h.Sum(nil)[:16]
		u[6] = u[6]&0x0f | 0x50
		u[8] = u[8]&0x3f | 0x80
		return cty.StringVal(fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])), nil
	},
})

func namespace(s string) ([]byte, error) {
	// The four of RFC 9562 differ in their eighth digit only.
	if digit, ok := map[string]string{"dns": "0", "url": "1", "oid": "2", "x500": "4"}[s]; ok {
		s = "6ba7b81" + digit + "-9dad-11d1-80b4-00c04fd430c8"
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != 16 || len(s) != 36 {
		return nil, errors.New("must be dns, url, oid, x500 or a UUID")
	}
	return b, nil
}
