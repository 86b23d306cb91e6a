package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"logbook/engine/record"
)

// recordJSON is a record as consume --json prints it and produce --format json reads it: the
// same to the byte, whatever it holds.
type recordJSON struct {
	Topic     string       `json:"topic,omitempty"`
	Partition *int         `json:"partition,omitempty"`
	Offset    *int64       `json:"offset,omitempty"`
	Timestamp *int64       `json:"timestamp_ms,omitempty"`
	Key       jsonBytes    `json:"key"`
	Value     jsonBytes    `json:"value"`
	Headers   []headerJSON `json:"headers,omitempty"`
}

// headerJSON is a header. They are a list, since names may repeat.
type headerJSON struct {
	Name  jsonBytes `json:"name"`
	Value jsonBytes `json:"value"`
}

// jsonBytes are bytes: null, text where they are text, or {"base64":"…"}.
type jsonBytes []byte

func (b jsonBytes) MarshalJSON() ([]byte, error) {
	switch {
	case b == nil:
		return []byte("null"), nil
	case utf8.Valid(b):
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		err := e.Encode(string(b))
		return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(b)})
}

func (b *jsonBytes) UnmarshalJSON(data []byte) error {
	*b = nil
	if string(data) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		*b = []byte(s)
		return nil
	}
	var coded struct {
		Base64 *string `json:"base64"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&coded); err != nil || coded.Base64 == nil {
		return errors.New(`it must be text, null, or {"base64":"…"}`)
	}
	raw, err := base64.StdEncoding.DecodeString(*coded.Base64)
	if err != nil {
		return err
	}
	*b = append([]byte{}, raw...)
	return nil
}

// parseRecord reads a line of JSON: one document, and nothing after it.
func parseRecord(line []byte) (record.Record, error) {
	var d struct {
		recordJSON
		Headers json.RawMessage `json:"headers"`
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return record.Record{}, fmt.Errorf(`it must be like {"key":"k","value":"v"}: %w`, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return record.Record{}, errors.New("there is something after the document; write one a line")
	}
	r := record.Record{Key: d.Key, Value: d.Value}
	if d.Timestamp != nil {
		r.Timestamp = timeOf(*d.Timestamp)
	}
	var err error
	r.Headers, err = parseHeaders(d.Headers)
	return r, err
}

// parseHeaders reads headers: a list, or an object where no name repeats.
func parseHeaders(data json.RawMessage) ([]record.Header, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	var list []headerJSON
	if json.Unmarshal(data, &list) == nil {
		var out []record.Header
		for _, h := range list {
			if !utf8.Valid(h.Name) {
				return nil, errors.New("a header's name must be text")
			}
			out = append(out, record.Header{Key: string(h.Name), Value: h.Value})
		}
		return out, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New(`headers must be like {"name":"value"}, or [{"name":"n","value":"v"}]`)
	}
	var out []record.Header
	for d.More() { // in their order, which a map would lose
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var v jsonBytes
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("the header %q: %w", name, err)
		}
		out = append(out, record.Header{Key: name.(string), Value: v})
	}
	return out, nil
}
