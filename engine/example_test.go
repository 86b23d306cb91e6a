package engine_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"logbook/engine"
	"logbook/engine/record"
	"logbook/engine/stream"
)

// openExample opens an engine in a fresh directory with a topic of two partitions.
func openExample() (*engine.Engine, func()) {
	dir, err := os.MkdirTemp("", "logbook-example-")
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.Open(dir, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := e.CreateTopic(context.Background(), "flights", 2, nil); err != nil {
		log.Fatal(err)
	}
	return e, func() {
		e.Close()
		os.RemoveAll(dir)
	}
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "logbook-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	e, err := engine.Open(dir, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	if _, err := e.CreateTopic(context.Background(), "flights", 4, nil); err != nil {
		log.Fatal(err)
	}
	names, _ := e.Topics(context.Background())
	fmt.Println(names)
	// Output: [flights]
}

func ExampleEngine_Producer() {
	e, done := openExample()
	defer done()

	p, err := e.Producer(context.Background(), "flights", stream.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for _, origin := range []string{"DTW", "HNL", "DTW"} {
		at, err := p.Send(context.Background(), record.Record{Key: []byte(origin), Value: []byte("a departure")})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s is in partition %d at offset %d\n", origin, at.Partition, at.Offset)
	}
	// Output:
	// DTW is in partition 1 at offset 0
	// HNL is in partition 0 at offset 0
	// DTW is in partition 1 at offset 1
}

func ExampleEngine_Consumer() {
	e, done := openExample()
	defer done()
	t, _ := e.Topic(context.Background(), "flights")
	for i := range 5 {
		t.AppendTo(context.Background(), 0, record.Record{Value: fmt.Appendf(nil, "flight %d", i)})
	}

	c, err := e.Consumer(context.Background(), stream.ConsumerOptions{ID: "dashboard", Topic: "flights"})
	if err != nil {
		log.Fatal(err)
	}
	records, err := c.Fetch(context.Background(), 3)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range records {
		fmt.Println(string(r.Value))
	}
	if err := c.Commit(context.Background()); err != nil {
		log.Fatal(err)
	}
	lag, _ := c.Lag(context.Background())
	fmt.Println("lag:", lag)
	// Output:
	// flight 0
	// flight 1
	// flight 2
	// lag: 2
}

func ExampleEngine_JoinGroup() {
	e, done := openExample()
	defer done()
	t, _ := e.Topic(context.Background(), "flights")
	for i := range 4 {
		t.AppendTo(context.Background(), i%2, record.Record{Value: []byte("a departure")})
	}

	ctx := context.Background()
	m, err := e.JoinGroup(ctx, "dashboards", stream.MemberOptions{Topics: []string{"flights"}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Assignment())
	for n := 0; n < 4; {
		records, err := m.Fetch(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		n += len(records)
	}
	if err := m.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// [flights/0 flights/1]
}
