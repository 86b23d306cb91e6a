package cluster_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// BenchmarkReplicatedWrite is what a write of 1 KiB costs at 1, 2 and 3 replicas, beside
// the log's own append of the same record, all on real files.
func BenchmarkReplicatedWrite(b *testing.B) {
	rec := record.Record{Value: make([]byte, 1024)}
	for _, writers := range []int{1, 64} {
		parallel := func(b *testing.B, write func() error) {
			b.SetParallelism(max(1, writers/2)) // two cores
			b.SetBytes(1024)
			b.ResetTimer()
			if writers == 1 {
				for b.Loop() {
					require.NoError(b, write())
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := write(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		b.Run(fmt.Sprintf("log/writers=%d", writers), func(b *testing.B) {
			l, err := commitlog.Open(b.TempDir(), commitlog.Options{})
			require.NoError(b, err)
			defer l.Close()
			parallel(b, func() error { _, err := l.Append(rec); return err })
		})
		for replicas := 1; replicas <= 3; replicas++ {
			b.Run(fmt.Sprintf("replicas=%d/writers=%d", replicas, writers), func(b *testing.B) {
				c, err := cluster.Open(b.TempDir(), cluster.Options{})
				require.NoError(b, err)
				defer c.Close()
				for id := 1; id <= replicas; id++ {
					require.NoError(b, c.Start(replica.BrokerID(id)))
				}
				require.NoError(b, c.CreateTopic("flights", 1, replicas))
				parallel(b, func() error { _, err := c.Append(b.Context(), flights0, rec); return err })
			})
		}
	}
}
