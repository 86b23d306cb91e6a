package cell

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"", "", true},
		{"a\nb", "a\nb", true},
		{"took … ms", "took 17.3 ms", true},
		{"… a …", "x a y", true},
		{"… a …", "x b y", false},
		{"a…", "b", false},
		{"a.b", "axb", false},
		{"a", "a\nb", false},
		{"a\nb", "a", false},
		{"", "anything", false},
		{"a", "", false},
		{"a  ", "a", true},
	} {
		assert.Equal(t, c.same, Diff(c.want, c.got) == "", "%q against %q", c.want, c.got)
	}
}
