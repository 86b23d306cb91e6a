package commitlog

import (
	"errors"
	"io"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// scanWindow is what a scanner reads at a time: large enough that a system call costs
// little per frame, small enough that the checksum finds the bytes still in cache.
const scanWindow = 256 << 10

// scanner reads frames one after another from a range of a file.
type scanner struct {
	file   vfs.File
	format record.Format
	pos    int64 // position in the file of buf[lo]
	limit  int64 // where the range ends
	buf    []byte
	lo, hi int // the part of buf that holds unread bytes
	window int // bytes to read at a time; 0 is scanWindow
}

// reset points the scanner at [pos, limit) of a file. Its buffer is reused.
func (s *scanner) reset(f vfs.File, format record.Format, pos, limit int64) {
	s.file, s.format, s.pos, s.limit, s.lo, s.hi = f, format, pos, limit, 0, 0
}

// next returns the frame at pos and moves after it; its bytes are good until the next
// call. It returns io.EOF at limit, a *record.FrameError for bytes that are no frame
// (then pos stays), and the file's own error when reading fails.
func (s *scanner) next() (record.Frame, error) {
	for {
		window := s.buf[s.lo:s.hi]
		if len(window) == 0 && s.pos >= s.limit {
			return record.Frame{}, io.EOF
		}
		need, err := s.format.FrameSize(window)
		if err != nil && err != record.ErrIncomplete {
			return record.Frame{}, err
		}
		if need <= len(window) || int64(need) > s.limit-s.pos {
			// Either it is all here, or it never will be and Parse says what is missing.
			frame, err := s.format.Parse(window)
			if err != nil {
				if need <= len(window) || int64(len(window)) >= min(s.limit-s.pos, 64) {
					return frame, err
				}
				need = int(min(s.limit-s.pos, 64)) // let the message name the right field
			} else {
				s.lo += len(frame.Bytes)
				s.pos += int64(len(frame.Bytes))
				return frame, nil
			}
		}
		if err := s.fill(need); err != nil {
			return record.Frame{}, err
		}
	}
}

// holds reports whether the next frame, or what is none, has been read already.
func (s *scanner) holds() bool {
	window := s.buf[s.lo:s.hi]
	need, err := s.format.FrameSize(window)
	return err == nil && need <= len(window)
}

// fill makes at least need bytes available after lo, and as many more as fit. need is
// never more than what is left of the range, which bounds what it allocates.
func (s *scanner) fill(need int) error {
	if cap(s.buf)-s.lo < need || s.lo == s.hi {
		have := copy(s.buf[:cap(s.buf)], s.buf[s.lo:s.hi])
		s.lo, s.hi = 0, have
		if cap(s.buf) < need || s.buf == nil {
			window := scanWindow
			if s.window > 0 {
				window = s.window
			}
			size := max(need, int(min(int64(window), s.limit-s.pos)))
			s.buf = append(make([]byte, 0, size), s.buf[:have]...)
		}
	}
	s.buf = s.buf[:cap(s.buf)]
	from := s.pos + int64(s.hi-s.lo)
	room := s.buf[s.hi:]
	if left := s.limit - from; int64(len(room)) > left {
		room = room[:left]
	}
	n, err := s.file.ReadAt(room, from)
	s.hi += n
	s.buf = s.buf[:s.hi]
	if s.hi-s.lo >= need {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the file is shorter than the range
	}
	return err
}
