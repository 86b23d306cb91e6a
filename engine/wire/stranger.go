package wire

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
)

// StrangerError: what answers at an address is no broker, or not one that is spoken to this
// way. Trying again does not help.
type StrangerError struct {
	Address string
	Reason  string // what is there, and what to do
	Err     error
}

func (e *StrangerError) Error() string {
	return fmt.Sprintf("wire: %s: %s", e.Address, e.Reason)
}

func (e *StrangerError) Unwrap() error { return e.Err }

// stranger says who answers, where that can be told from how a hello failed; else nil.
func stranger(address string, err error) error {
	if tl, ok := errors.AsType[*FrameTooLargeError](err); ok {
		switch {
		case tl.Length == 'H'<<24|'T'<<16|'T'<<8|'P':
			return &StrangerError{address, "an HTTP server answers there, not a broker; use the broker's port (LOGBOOK_BROKER_PORT, 9400 unless told otherwise)", err}
		case tl.Length>>8 == 0x15_03_01 || tl.Length>>8 == 0x15_03_03: // an alert of TLS 1.0 or 1.2
			return &StrangerError{address, "it wants TLS; connect with TLS (--tls, or tls=true in an address)", err}
		}
		if head := binary.BigEndian.AppendUint32(nil, tl.Length); !bytes.ContainsFunc(head, func(r rune) bool { return r < ' ' || r > '~' }) {
			return &StrangerError{address, fmt.Sprintf("text answers there, from %q on, not a broker: an HTTP server?", head), err}
		}
		return &StrangerError{address, fmt.Sprintf("no broker answers there: what came would be %v", err), err}
	}
	if rh, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return &StrangerError{address, "it does not speak TLS; connect without, or turn it on there (LOGBOOK_TLS_CERT, LOGBOOK_TLS_KEY)", rh}
	}
	if cv, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &StrangerError{address, "its certificate is not trusted here: " + cv.Err.Error() + "; name who signed it (LOGBOOK_TLS_CA)", cv}
	}
	return nil
}
