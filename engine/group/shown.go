package group

import "strings"

// Shown is a member's id as others may see it. The id is what a member proves itself with:
// whoever knows all of it can leave in its name. So the second half of what comes after the
// last hyphen, which is random, is kept back.
func Shown(id string) string {
	tail := strings.LastIndexByte(id, '-') + 1
	return id[:len(id)-(len(id)-tail)/2] + "…"
}
