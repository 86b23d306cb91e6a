package lab

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"time"
)

// Flight is a departure from testdata/streams/flights.jsonl.gz.
type Flight struct {
	Date        string `json:"date"`     // "YYYY/MM/DD HH:MM", local
	Delay       int    `json:"delay"`    // minutes
	Distance    int    `json:"distance"` // miles
	Origin      string `json:"origin"`   // IATA codes
	Destination string `json:"destination"`

	JSON []byte `json:"-"` // the line as it is in the file
}

// Time is the departure, as if local time were UTC.
func (f Flight) Time() time.Time {
	t, err := time.Parse("2006/01/02 15:04", f.Date)
	must(err)
	return t
}

// Flights iterates over the first n of 20,000 real departures of 2001, in order of time.
func Flights(n int) iter.Seq[Flight] {
	return func(yield func(Flight) bool) {
		file, err := os.Open(filepath.Join(projectRoot(), "testdata", "streams", "flights.jsonl.gz"))
		must(err)
		defer file.Close()
		z, err := gzip.NewReader(file)
		must(err)
		lines := bufio.NewScanner(z)
		for i := 0; i < n && lines.Scan(); i++ {
			f := Flight{JSON: append([]byte(nil), lines.Bytes()...)}
			must(json.Unmarshal(f.JSON, &f))
			if !yield(f) {
				return
			}
		}
		must(lines.Err())
	}
}
