// Package measure is what the lesson on speed measures with: a file system that says where
// its time went, a load that comes on a fixed schedule, a profile drawn as a flame graph,
// and line charts. It is a package of its own so that cells that do not measure compile as
// fast as before.
package measure
