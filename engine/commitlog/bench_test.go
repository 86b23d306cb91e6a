package commitlog_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
)

// Each benchmark runs a baseline beside the log, so that ratios can be read from one run:
//
//	go test -run - -bench . ./engine/commitlog

func openBench(b *testing.B, opt commitlog.Options) *commitlog.Log {
	l, err := commitlog.Open(filepath.Join(b.TempDir(), "log"), opt)
	require.NoError(b, err)
	b.Cleanup(func() { l.Close() })
	return l
}

var payload = make([]byte, 100)

// One durable writer. raw/growing and raw/preallocated are bare system calls.
func BenchmarkOneWriter(b *testing.B) {
	raw := func(preallocate bool) func(*testing.B) {
		return func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
			require.NoError(b, err)
			defer f.Close()
			if preallocate {
				require.NoError(b, f.Truncate(64<<20))
			}
			frame := make([]byte, 171)
			for i := 0; b.Loop(); i++ {
				if _, err := f.WriteAt(frame, int64(i*len(frame))); err != nil {
					b.Fatal(err)
				}
				if err := syscall.Fdatasync(int(f.Fd())); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("raw/growing", raw(false))
	b.Run("raw/preallocated", raw(true))
	b.Run("log", func(b *testing.B) {
		l := openBench(b, commitlog.Options{})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Append(record.Record{Value: payload}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// 64 durable writers. naive writes and syncs each record under one mutex.
func BenchmarkSixtyFourWriters(b *testing.B) {
	const writers = 64
	run := func(b *testing.B, write func() error) {
		var wg sync.WaitGroup
		for w := range writers {
			n := b.N / writers
			if w < b.N%writers {
				n++
			}
			wg.Go(func() {
				for range n {
					if err := write(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
	}
	b.Run("naive", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
		require.NoError(b, err)
		defer f.Close()
		var mu sync.Mutex
		frame := make([]byte, 171)
		run(b, func() error {
			mu.Lock()
			defer mu.Unlock()
			if _, err := f.Write(frame); err != nil {
				return err
			}
			return syscall.Fdatasync(int(f.Fd()))
		})
	})
	b.Run("log", func(b *testing.B) {
		l := openBench(b, commitlog.Options{})
		run(b, func() error {
			_, err := l.Append(record.Record{Value: payload})
			return err
		})
		s := l.Stats()
		b.ReportMetric(float64(s.Frames)/float64(s.Rounds), "acks/sync")
	})
}

// A shared committer: 64 writers over 1, 4, 16 and 64 logs.
func BenchmarkSharedCommitter(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("logs=%d", n), func(b *testing.B) {
			committer := commitlog.NewCommitter()
			logs := make([]*commitlog.Log, n)
			for i := range logs {
				logs[i] = openBench(b, commitlog.Options{Committer: committer})
			}
			var wg sync.WaitGroup
			b.ResetTimer()
			for w := range 64 {
				l := logs[w%n]
				wg.Go(func() {
					for range b.N/64 + 1 {
						if _, err := l.Append(record.Record{Value: payload}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
		})
	}
}

// Batches of a thousand 1 KiB records, one durable writer.
func BenchmarkBatches(b *testing.B) {
	b.Run("raw/preallocated", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
		require.NoError(b, err)
		defer f.Close()
		data := make([]byte, 1000*1030)
		b.SetBytes(int64(len(data)))
		for at := int64(0); b.Loop(); at += int64(len(data)) {
			if at%(60*int64(len(data))) == 0 {
				require.NoError(b, f.Truncate(at+64<<20))
			}
			if _, err := f.WriteAt(data, at); err != nil {
				b.Fatal(err)
			}
			if err := syscall.Fdatasync(int(f.Fd())); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("log", benchmarkLogBatches)
}

func benchmarkLogBatches(b *testing.B) {
	l := openBench(b, commitlog.Options{})
	batch := make([]record.Record, 1000)
	for i := range batch {
		batch[i].Value = make([]byte, 1024)
	}
	b.SetBytes(1000 * 1024)
	for b.Loop() {
		if _, err := l.Append(batch...); err != nil {
			b.Fatal(err)
		}
	}
}

// Sequential reads of 1 KiB records beside reading the same file into a buffer.
func BenchmarkScan(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "log")
	l, err := commitlog.Open(dir, commitlog.Options{Sync: commitlog.SyncOS, SegmentBytes: 1 << 30})
	require.NoError(b, err)
	const records = 100_000
	batch := make([]record.Record, 100)
	for i := range batch {
		batch[i].Value = make([]byte, 1024)
	}
	for range records / len(batch) {
		_, err := l.Append(batch...)
		require.NoError(b, err)
	}
	require.NoError(b, l.Close())
	l, err = commitlog.Open(dir, commitlog.Options{})
	require.NoError(b, err)
	defer l.Close()
	name := filepath.Join(dir, commitlog.SegmentName(0)+".log")
	info, err := os.Stat(name)
	require.NoError(b, err)
	for _, window := range []int{128 << 10, 1 << 20, int(info.Size())} {
		b.Run(fmt.Sprintf("raw/buffer=%dKiB", window>>10), func(b *testing.B) {
			b.SetBytes(info.Size())
			buf := make([]byte, window)
			for b.Loop() {
				f, err := os.Open(name)
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := f.Read(buf); err == io.EOF {
						break
					}
				}
				f.Close()
			}
		})
	}
	b.Run("log/records", func(b *testing.B) {
		b.SetBytes(info.Size())
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for rec, err := range l.Records(0) {
				if err != nil {
					b.Fatal(err)
				}
				n += len(rec.Value)
			}
			if n != records*1024 {
				b.Fatal(n)
			}
		}
	})
}

func BenchmarkPointRead(b *testing.B) {
	l := fill(b, filepath.Join(b.TempDir(), "log"), 1_000_000)
	defer l.Close()
	i := int64(0)
	for b.Loop() {
		if _, err := l.Read(i * 7919 % 1_000_000); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// Reopening, after Close and after a kill.
func BenchmarkReopen(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		dir := filepath.Join(b.TempDir(), fmt.Sprint(n))
		open := fill(b, dir, n)
		require.NoError(b, open.Sync())
		b.Run(fmt.Sprintf("killed/records=%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				copied := filepath.Join(b.TempDir(), fmt.Sprint(i))
				require.NoError(b, os.CopyFS(copied, os.DirFS(dir)))
				syscall.Sync() // the copy's own bytes are not the log's to sync
				b.StartTimer()
				l, err := commitlog.Open(copied, commitlog.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if l.EndOffset() != int64(n) || l.Recovery().Clean {
					b.Fatal(l.Recovery())
				}
				b.StopTimer()
				l.Close()
				require.NoError(b, os.RemoveAll(copied))
				b.StartTimer()
			}
		})
		require.NoError(b, open.Close())
		b.Run(fmt.Sprintf("clean/records=%d", n), func(b *testing.B) {
			for b.Loop() {
				l, err := commitlog.Open(dir, commitlog.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if l.EndOffset() != int64(n) || !l.Recovery().Clean {
					b.Fatal(l.Recovery())
				}
				b.StopTimer()
				l.Close()
				b.StartTimer()
			}
		})
	}
}

func fill(b *testing.B, dir string, n int) *commitlog.Log {
	l, err := commitlog.Open(dir, commitlog.Options{Sync: commitlog.SyncOS})
	require.NoError(b, err)
	for range n {
		if _, err := l.Append(record.Record{Value: payload}); err != nil {
			b.Fatal(err)
		}
	}
	return l
}
