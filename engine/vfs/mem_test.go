package vfs_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/vfs"
)

func read(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	require.NoError(t, err)
	return string(b)
}

// states returns every content that a file may have after a crash now.
func states(t *testing.T, m *vfs.Mem, name string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for c := range m.Crashes(0, nil) {
		out[read(t, c.FS, name)] = true
	}
	return out
}

func set(values ...string) map[string]bool {
	out := map[string]bool{}
	for _, v := range values {
		out[v] = true
	}
	return out
}

func create(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	require.NoError(t, err)
	return f
}

// Both file systems, as far as nobody crashes.
func TestFileSystems(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"os": vfs.OS, "mem": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			require.NoError(t, fsys.MkdirAll(dir))
			require.NoError(t, fsys.MkdirAll(dir), "twice is fine")
			at := func(n string) string { return filepath.Join(dir, n) }
			_, err := fsys.Open(at("x"))
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorIs(t, fsys.Remove(at("x")), fs.ErrNotExist)
			_, err = fsys.ReadDir(at("nowhere"))
			require.ErrorIs(t, err, fs.ErrNotExist)

			f := create(t, fsys, at("x"), "hello")
			_, err = fsys.Create(at("x"))
			require.ErrorIs(t, err, fs.ErrExist)
			require.NoError(t, f.Truncate(8))
			assert.Equal(t, "hello\x00\x00\x00", read(t, fsys, at("x")))
			require.NoError(t, f.Truncate(2))
			require.NoError(t, f.Truncate(4))
			assert.Equal(t, "he\x00\x00", read(t, fsys, at("x")), "what was cut does not come back")
			_, err = f.WriteAt([]byte("!"), 6)
			require.NoError(t, err)
			size, err := f.Size()
			require.NoError(t, err)
			assert.Equal(t, int64(7), size)
			require.NoError(t, f.Sync())
			at6, err := f.NextData(6)
			require.NoError(t, err)
			assert.Equal(t, int64(6), at6)
			require.NoError(t, f.Truncate(1<<20+1))
			_, err = f.WriteAt([]byte("!"), 1<<20)
			require.NoError(t, err)
			next, err := f.NextData(100 << 10)
			require.NoError(t, err)
			assert.LessOrEqual(t, next, int64(1<<20), "what is written is not skipped")
			if runtime.GOOS == "linux" {
				assert.Equal(t, int64(1<<20), next, "a hole of a megabyte is")
			}
			require.NoError(t, f.Truncate(1<<20))
			next, err = f.NextData(100 << 10)
			require.NoError(t, err)
			assert.LessOrEqual(t, next, int64(1<<20), "nothing comes after: the end, or where it asked")
			next, err = f.NextData(1 << 20)
			require.NoError(t, err)
			assert.Equal(t, int64(1<<20), next)
			require.NoError(t, f.Truncate(7))

			ro, err := fsys.OpenRead(at("x"))
			require.NoError(t, err)
			_, err = ro.WriteAt([]byte("x"), 0)
			require.Error(t, err)
			require.NoError(t, ro.Close())

			create(t, fsys, at("y"), "other")
			require.NoError(t, fsys.Rename(at("y"), at("x")))
			assert.Equal(t, "other", read(t, fsys, at("x")))
			names, err := fsys.ReadDir(dir)
			require.NoError(t, err)
			assert.Equal(t, []string{"x"}, names)
			b := make([]byte, 7)
			_, err = f.ReadAt(b, 0)
			require.NoError(t, err, "an open file outlives its name")

			lock, err := fsys.Lock(at("x"))
			require.NoError(t, err)
			_, err = fsys.Lock(at("x"))
			require.ErrorIs(t, err, vfs.ErrLocked)
			require.NoError(t, lock.Close())
			lock, err = fsys.Lock(at("x"))
			require.NoError(t, err)
			require.NoError(t, lock.Close())

			require.NoError(t, vfs.WriteFileAtomic(fsys, at("x"), []byte("atomic")))
			require.NoError(t, vfs.WriteFileAtomic(fsys, at("z"), []byte("new")))
			assert.Equal(t, "atomic", read(t, fsys, at("x")))
			names, err = fsys.ReadDir(dir)
			require.NoError(t, err)
			assert.Equal(t, []string{"x", "z"}, names, "no temporary file is left")
			_, err = vfs.ReadFile(fsys, at("x"), 3)
			require.ErrorContains(t, err, "6 bytes, more than the 3")
			require.NoError(t, f.Close())
			_, err = f.ReadAt(b, 0)
			require.ErrorIs(t, err, fs.ErrClosed)
		})
	}
}

func TestUnsyncedBytesMayBeLostInAnyPrefix(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/x", "")
	require.NoError(t, m.SyncDir("d"))
	_, err := f.WriteAt([]byte("abc"), 0)
	require.NoError(t, err)
	assert.Equal(t, set("", "a", "ab", "abc", "\x00\x00\x00"), states(t, m, "d/x"))
	require.NoError(t, f.Sync())
	assert.Equal(t, set("abc"), states(t, m, "d/x"))
	_, err = f.WriteAt([]byte("XY"), 1)
	require.NoError(t, err)
	assert.Equal(t, set("abc", "aXc", "aXY"), states(t, m, "d/x"))
}

func TestUnsyncedBlocksMayReachTheDiskInAnyOrder(t *testing.T) {
	m := vfs.NewMem()
	m.BlockSize = 2
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/x", "aabb")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("d"))
	_, err := f.WriteAt([]byte("AABBCC"), 0)
	require.NoError(t, err)
	got := states(t, m, "d/x")
	for _, want := range []string{
		"aabb", "AABBCC", "AABB\x00\x00", "aabbCC", "aaBBCC", "aaBB\x00\x00", "AAbbCC", "aabb\x00\x00", "Aabb", "AABBC",
	} {
		assert.True(t, got[want], "%q is possible", want)
	}
	assert.False(t, got["\x00\x00BBCC"], "a lost block keeps its old content")
}

func TestUnsyncedNamesMayBeLost(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/old", "1")
	require.NoError(t, f.Sync())
	assert.Equal(t, set("(none)", "1"), states(t, m, "d/old"), "synced bytes of a name that is not")
	require.NoError(t, m.SyncDir("d"))
	assert.Equal(t, set("1"), states(t, m, "d/old"))
	g := create(t, m, "d/new", "2")
	require.NoError(t, g.Sync())
	require.NoError(t, m.Rename("d/new", "d/old"))
	assert.Equal(t, set("1", "2"), states(t, m, "d/old"))
	require.NoError(t, m.SyncDir("d"))
	require.NoError(t, m.Remove("d/old"))
	assert.Equal(t, set("2", "(none)"), states(t, m, "d/old"))
}

func TestAtomicWritesAreAtomic(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, vfs.WriteFileAtomic(m, "d/x", []byte("old content")))
	seen := map[string]bool{}
	m.After = func(vfs.Op) {
		for c := range m.Crashes(0, nil) {
			seen[read(t, c.FS, "d/x")] = true
		}
	}
	require.NoError(t, vfs.WriteFileAtomic(m, "d/x", []byte("new")))
	assert.Equal(t, set("old content", "new"), seen)
}

func TestFailedSyncDropsTheBytesForGood(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/x", "abc")
	require.NoError(t, m.SyncDir("d"))
	m.Before = func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	}
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	m.Before = nil
	assert.Equal(t, "abc", read(t, m, "d/x"), "they can still be read")
	require.NoError(t, f.Sync(), "and the next sync succeeds")
	assert.Equal(t, set(""), states(t, m, "d/x"), "but they are not on the disk")
	assert.Equal(t, "abc", read(t, m.Kill(), "d/x"), "the page cache survives a kill")
	assert.Equal(t, set(""), states(t, m.Kill(), "d/x"), "and is still not on the disk")
}

func TestShortWrites(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/x", "")
	m.Before = func(op vfs.Op) error { return &vfs.ShortWrite{N: 2, Err: syscall.ENOSPC} }
	n, err := f.WriteAt([]byte("abc"), 0)
	assert.Equal(t, 2, n)
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.Equal(t, "ab", read(t, m, "d/x"))
}

func TestSampledCrashesStayWithinTheLimit(t *testing.T) {
	m := vfs.NewMem()
	m.BlockSize = 16
	require.NoError(t, m.MkdirAll("d"))
	for _, name := range []string{"d/a", "d/b", "d/c"} {
		create(t, m, name, string(make([]byte, 200)))
	}
	for _, limit := range []int{1, 2, 50} {
		n := 0
		for range m.Crashes(limit, rand.New(rand.NewPCG(1, 1))) {
			n++
		}
		assert.Equal(t, limit, n)
	}
}
