package metadata_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/metadata"
)

func unbase64(t *testing.T, s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	require.NoError(t, err)
	return b
}

// The example of RFC 7677, section 3: the password "pencil". Its keys are what prove the
// messages there.
func TestCredentialIsTheRFCs(t *testing.T) {
	salt := unbase64(t, "W22ZaJ0SNY7soEsUEjb6gQ==")
	c, err := metadata.NewCredential(metadata.ScramSHA256, "pencil", salt, 4096)
	require.NoError(t, err)
	assert.Equal(t, "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=", base64.StdEncoding.EncodeToString(c.StoredKey))
	assert.Equal(t, "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=", base64.StdEncoding.EncodeToString(c.ServerKey))
	assert.True(t, c.Is(metadata.ScramSHA256, "pencil"))
	assert.False(t, c.Is(metadata.ScramSHA256, "pencils"))
	assert.False(t, c.Is(metadata.ScramSHA512, "pencil"))
}

func TestCredentialsAreChecked(t *testing.T) {
	salt := []byte("salt")
	for name, try := range map[string]func() error{
		"no mechanism": func() error { _, err := metadata.NewCredential("PLAIN", "x", salt, 4096); return err },
		"no password":  func() error { _, err := metadata.NewCredential(metadata.ScramSHA256, "", salt, 4096); return err },
		"no salt":      func() error { _, err := metadata.NewCredential(metadata.ScramSHA256, "x", nil, 4096); return err },
		"too often":    func() error { _, err := metadata.NewCredential(metadata.ScramSHA256, "x", salt, 16385); return err },
		"too rarely":   func() error { _, err := metadata.NewCredential(metadata.ScramSHA256, "x", salt, 4095); return err },
		"no hash": func() error {
			_, err := metadata.SaltedCredential(metadata.ScramSHA256, nil, salt, 4096)
			return err
		},
	} {
		assert.Error(t, try(), name)
	}
}

// Users are part of what is decided: they are made, changed, deleted, and found again.
func TestUsersOfAnImage(t *testing.T) {
	one, err := metadata.NewCredential(metadata.ScramSHA256, "one", []byte("salt"), 4096)
	require.NoError(t, err)
	user := func(name string, c map[metadata.Mechanism]metadata.Credential) metadata.Record {
		return metadata.Record{User: &metadata.UserRecord{Name: name, Credentials: c}}
	}
	had := map[metadata.Mechanism]metadata.Credential{metadata.ScramSHA256: one}
	empty := new(metadata.Image)
	image, err := empty.Apply(user("alice", had), user("bob", had))
	require.NoError(t, err)
	assert.Equal(t, []string{"alice", "bob"}, image.Users())
	assert.Empty(t, empty.Users(), "an image never changes")
	next, err := image.Apply(user("alice", nil))
	require.NoError(t, err)
	assert.Equal(t, []string{"bob"}, next.Users())
	assert.Empty(t, next.User("alice"))

	// Who had the one image, or nothing, comes to the other by what lies between.
	for _, from := range []*metadata.Image{image, empty} {
		reached, err := from.Apply(from.Diff(next)...)
		require.NoError(t, err)
		assert.Equal(t, next.Users(), reached.Users())
	}
	for _, bad := range []metadata.Record{user("", had), user(string(make([]byte, 250)), had), user("x", map[metadata.Mechanism]metadata.Credential{"PLAIN": one}), user("x", map[metadata.Mechanism]metadata.Credential{metadata.ScramSHA512: one})} {
		_, err := image.Apply(bad)
		assert.Error(t, err)
	}
}
