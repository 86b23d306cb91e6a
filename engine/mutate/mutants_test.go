package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Mutants rot when the code moves on; this notices at once.
func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range mutants {
		assert.False(t, names[m.name], m.name)
		names[m.name] = true
		_, src, err := m.source()
		require.NoError(t, err, m.name)
		_, err = parser.ParseFile(token.NewFileSet(), m.file, src, 0)
		require.NoError(t, err, m.name)
	}
	assert.GreaterOrEqual(t, len(mutants), 12)
}
