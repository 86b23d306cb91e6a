package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// encoding is how bytes stand in lines: text (as they are), hex or base64. It is a flag's value.
type encoding string

func (e *encoding) String() string { return string(*e) }

func (e *encoding) Type() string { return "string" }

func (e *encoding) Set(v string) error {
	switch v {
	case "text", "hex", "base64":
		*e = encoding(v)
		return nil
	}
	return fmt.Errorf("it must be text, hex or base64")
}

func (e encoding) encode(b []byte) string {
	switch e {
	case "hex":
		return hex.EncodeToString(b)
	case "base64":
		return base64.StdEncoding.EncodeToString(b)
	}
	return string(b)
}

func (e encoding) decode(b []byte) ([]byte, error) {
	switch e {
	case "hex":
		return hex.AppendDecode([]byte{}, b)
	case "base64":
		return base64.StdEncoding.AppendDecode([]byte{}, b)
	}
	return b, nil
}
