// Package admission bounds what strangers can take from a broker: memory and connections.
//
// Memory is one pool for all that is under way: requests as their bytes come, what they
// grow to when they are read, and replies until they are written. Connections have places;
// when all are taken, one that has nothing under way gives up its own, and it is one of the
// address that holds the most.
package admission
