package commitlog

import (
	"io"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// What a crash can do to bytes that were written and not yet synced, and what it cannot.
//
// A sector reaches the disk whole or not at all, and one that did not holds what was
// there before: zeros, after the last frame of the round before. So a frame that a crash
// tore lacks at least one sector up to that sector's end. A process that is killed while it
// writes leaves the first bytes of the write, and zeros up to the end of the file.

// sectorBytes is the least that a disk writes as one.
const sectorBytes = 512

// lostSector reports whether a crash may have kept a sector of the frame b, which stands
// at a position, from the disk.
func lostSector(b []byte, position int64) bool {
	for at := 0; at < len(b); {
		end := at + int(sectorBytes-(position+int64(at))%sectorBytes)
		if end > len(b) {
			return false // the rest of the sector is not this frame's
		}
		if trimZeros(b[at:end]) == 0 {
			return true
		}
		at = end
	}
	return false
}

// mayBeTorn reports whether a crash can have left the bytes [from, to) of a file, in front
// of a frame that is intact.
func mayBeTorn(f vfs.File, from, to int64) (bool, error) {
	buf := make([]byte, min(to-from, scanWindow))
	for at := from; at < to; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		if n == 0 {
			return false, err
		}
		whole := int64(n)
		if at+whole < to { // leave a sector that is not whole to the next read
			whole -= (at + whole) % sectorBytes
		}
		if lostSector(buf[:whole], at) {
			return true, nil
		}
		at += whole
	}
	return false, nil
}

// written returns how far the frames above the mark can be taken for written, where there
// is no checksum to tell: up to the first that a crash may have torn.
func (l *Log) written(s *segment, t tail, limit int64) (int64, error) {
	var sc scanner
	sc.reset(s.file, l.format, t.durable, limit)
	last := t.durable // where the last frame starts
	endsInZero := false
	for {
		at := sc.pos
		f, err := sc.next()
		if err != nil && err != io.EOF && !isFrameError(err) {
			return 0, err
		}
		if err != nil {
			break // the scan that follows says what is wrong
		}
		if lostSector(f.Bytes, at) {
			return at, nil
		}
		last, endsInZero = at, f.Bytes[len(f.Bytes)-1] == 0
	}
	if endsInZero { // the next byte is a zero, too, or the file's end
		return last, nil
	}
	return limit, nil
}

func isFrameError(err error) bool {
	_, ok := err.(*record.FrameError)
	return ok || err == io.ErrUnexpectedEOF
}
