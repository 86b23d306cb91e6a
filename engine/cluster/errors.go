package cluster

import (
	"errors"
	"fmt"
)

// ErrClosed: the cluster was closed.
var ErrClosed = errors.New("cluster: closed; open it again")

// BrokerDownError: a broker is not running.
type BrokerDownError struct{ Broker BrokerID }

func (e *BrokerDownError) Error() string {
	return fmt.Sprintf("cluster: broker %d is down; start it", e.Broker)
}
