// Weave turns a lesson's literate source, tutorials/NN-name/README.md, into a notebook
// and a Go test, and an edited notebook back into the source.
//
//	go run ./tutorials/weave                 weave notebooks and tests of all lessons
//	go run ./tutorials/weave -run            … and execute the notebooks in the real kernel, keeping the outputs
//	go run ./tutorials/weave -run -accept    … and write what cells print into the output blocks of the source
//	go run ./tutorials/weave -check          fail where a woven file is not what the source makes
//	go run ./tutorials/weave -check -run     … or where an executed cell fails or prints something else
//	go run ./tutorials/weave -from-notebook  write the sources from the notebooks
//
// Names of lessons after the flags restrict it to those.
//
// # The source
//
// A fenced block whose info string is exactly "go" is a code cell, as typed in the
// notebook: declarations, then perhaps a line "%%" and a main body; or "%test" and tests.
// A fenced block "output" directly under it is what the cell must print; in it, … stands
// for any text within a line, for durations and the like. A block "go answer" is an
// exercise's answer: not a cell, but compiled and run as a test. Everything else is prose.
//
// A cell prints first and shows rich output (package lab) last: the two travel on
// different pipes, and only so is their order certain.
//
// # The test
//
// Each lesson becomes one test file. The functions of a %test cell are its tests; a
// printing cell is a test that runs the cell's body in a fresh process, as the kernel
// does, and compares what it prints. Declarations are remembered from cell to cell as in
// the notebook, so a name may be declared once in a lesson. Positions in compiler errors
// and stack traces are those of the source.
package main
