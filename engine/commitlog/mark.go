package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"logbook/engine/vfs"
)

// mark says how far the log is durable: every byte of the segment with base Segment
// below Position is synced, as is every earlier segment.
type mark struct {
	seq      uint64 // grows by one with each note
	segment  int64  // base offset of the segment
	position int64  // bytes of its log file
	next     int64  // offset of the record that will be stored there
	clean    bool   // written by Close: the log file ends at position
	// loose: frames above the mark may have been acknowledged without a sync (formats 0
	// and 1, under SyncInterval and SyncOS), so recovery must not drop whole ones.
	loose bool
}

// A mark file has two slots, a block apart, that are written in turn: a crash while one
// is written leaves the other. A slot is
//
//	magic "LBMK" uint32, flags uint32 (bit 0: clean, 1: loose), seq, segment, position, next uint64, crc uint32
const (
	markMagic    = 0x4c424d4b
	markSlotSize = 44
	markSlotGap  = 4096
	markFileSize = 2 * markSlotGap
)

func (m mark) encode(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b[:0], markMagic)
	var flags uint32
	if m.clean {
		flags |= 1
	}
	if m.loose {
		flags |= 2
	}
	b = be.AppendUint32(b, flags)
	b = be.AppendUint64(b, m.seq)
	b = be.AppendUint64(b, uint64(m.segment))
	b = be.AppendUint64(b, uint64(m.position))
	b = be.AppendUint64(b, uint64(m.next))
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeMark(b []byte) (mark, error) {
	be := binary.BigEndian
	switch {
	case len(b) < markSlotSize:
		return mark{}, fmt.Errorf("%d of %d bytes", len(b), markSlotSize)
	case be.Uint32(b[40:]) != crc32.Checksum(b[:40], castagnoli):
		return mark{}, fmt.Errorf("checksum does not match")
	case be.Uint32(b) != markMagic || be.Uint32(b[4:]) > 3:
		return mark{}, fmt.Errorf("not a mark")
	}
	m := mark{
		clean: be.Uint32(b[4:])&1 != 0, loose: be.Uint32(b[4:])&2 != 0, seq: be.Uint64(b[8:]),
		segment: int64(be.Uint64(b[16:])), position: int64(be.Uint64(b[24:])), next: int64(be.Uint64(b[32:])),
	}
	if m.segment < 0 || m.position < 0 || m.next < m.segment {
		return mark{}, fmt.Errorf("impossible values %+v", m)
	}
	return m, nil
}

// readMark returns the newer intact slot. damage says what is wrong with the other one,
// if anything: a torn write of the machine's last moment looks like that, and so does a
// flipped bit, so it is for the caller to report.
func readMark(fsys vfs.FS, name string) (m mark, damage, err error) {
	b, err := vfs.ReadFile(fsys, name, markFileSize)
	if err != nil {
		return mark{}, nil, err
	}
	slot := func(i int) (mark, error) {
		if len(b) < i*markSlotGap {
			return mark{}, fmt.Errorf("slot %d: the file has only %d bytes", i, len(b))
		}
		block := b[i*markSlotGap : min((i+1)*markSlotGap, len(b))]
		m, err := decodeMark(block)
		if err == nil && (len(block) < markSlotGap || trimZeros(block[markSlotSize:]) > 0) {
			damage = fmt.Errorf("slot %d: the rest of its block is not %d zeros", i, markSlotGap-markSlotSize)
		}
		if err != nil {
			err = fmt.Errorf("slot %d: %w", i, err)
		}
		return m, err
	}
	m0, err0 := slot(0)
	m1, err1 := slot(1)
	switch {
	case err0 != nil && err1 != nil:
		return mark{}, nil, fmt.Errorf("no slot is intact: %w, %w", err0, err1)
	case err0 != nil:
		return m1, err0, nil
	case err1 != nil:
		return m0, err1, nil
	case m1.seq > m0.seq:
		return m1, damage, nil
	}
	return m0, damage, nil
}

// markFile writes marks.
type markFile struct {
	file vfs.File
	last mark
	buf  [markSlotSize]byte
}

func createMarkFile(fsys vfs.FS, name string, m mark) (*markFile, error) {
	f, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	w := &markFile{file: f}
	if err := f.Truncate(markFileSize); err != nil {
		f.Close()
		return nil, err
	}
	if err := w.note(m, true); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// note writes m into the slot that the last note did not use. both writes it into both
// and syncs: from then on no earlier mark can come back.
func (w *markFile) note(m mark, both bool) error {
	m.seq = w.last.seq + 1
	slot := m.encode(w.buf[:])
	if _, err := w.file.WriteAt(slot, int64(m.seq%2)*markSlotGap); err != nil {
		return err
	}
	w.last = m
	if !both {
		return nil
	}
	// The slots are synced one after the other, so that at no time both are in flight.
	if err := w.file.Sync(); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(slot, int64((m.seq+1)%2)*markSlotGap); err != nil {
		return err
	}
	return w.file.Sync()
}
