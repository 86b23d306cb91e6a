// Package cluster is several brokers in one process: PyStream's cluster. Brokers start and
// stop, writes go through leaders, and failover, catch-up and recovery are calls.
//
//	<root>/__cluster_metadata/          who leads what, and who is in sync: a log of decisions
//	<root>/broker-000001/               a broker's replicas, see package node
//
// Each broker is a Node (package node); a message is in the other node's inbox when it was
// sent. The controller stands beside the brokers (controller.Ledger), and outlives each.
package cluster
