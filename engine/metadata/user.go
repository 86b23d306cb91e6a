package metadata

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// Mechanism is a way to prove that one knows a password without saying it (RFC 5802, RFC 7677).
type Mechanism string

// The mechanisms, by the names that SASL has for them.
const (
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// Mechanisms lists them.
var Mechanisms = []Mechanism{ScramSHA256, ScramSHA512}

// MinIterations and MaxIterations bound how often a password is hashed; they are Kafka's.
const (
	MinIterations = 4096
	MaxIterations = 16384
)

func (m Mechanism) hash() func() hash.Hash {
	switch m {
	case ScramSHA256:
		return sha256.New
	case ScramSHA512:
		return sha512.New
	}
	return nil
}

// Credential is what is kept of a password: enough to check it, not enough to give it.
type Credential struct {
	Salt       []byte `json:"salt"`
	Iterations int    `json:"iterations"`
	StoredKey  []byte `json:"stored_key"`
	ServerKey  []byte `json:"server_key"`
}

// NewCredential makes the credential of a password.
//
// Errors: an unknown mechanism, iterations out of bounds, an empty password or salt.
func NewCredential(m Mechanism, password string, salt []byte, iterations int) (Credential, error) {
	h := m.hash()
	if h == nil {
		return Credential{}, &MechanismError{m}
	}
	if password == "" {
		return Credential{}, errors.New("metadata: an empty password")
	}
	salted, err := pbkdf2.Key(h, password, salt, iterations, h().Size())
	if err != nil {
		return Credential{}, err
	}
	return SaltedCredential(m, salted, salt, iterations)
}

// SaltedCredential makes the credential of a password that was hashed already, as Kafka's
// clients send it.
func SaltedCredential(m Mechanism, salted, salt []byte, iterations int) (Credential, error) {
	h := m.hash()
	switch {
	case h == nil:
		return Credential{}, &MechanismError{m}
	case len(salted) == 0 || len(salted) > 1024: // some clients take what they like for a hash
		return Credential{}, fmt.Errorf("metadata: a password hashed to %d bytes; %s makes %d", len(salted), m, h().Size())
	case iterations < MinIterations || iterations > MaxIterations:
		return Credential{}, &IterationsError{iterations}
	case len(salt) == 0 || len(salt) > 1024:
		return Credential{}, fmt.Errorf("metadata: a salt of %d bytes", len(salt))
	}
	sum := func(key []byte, text string) []byte {
		mac := hmac.New(h, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := h()
	stored.Write(sum(salted, "Client Key"))
	return Credential{Salt: salt, Iterations: iterations, StoredKey: stored.Sum(nil), ServerKey: sum(salted, "Server Key")}, nil
}

// Is reports whether a password is the credential's.
func (c Credential) Is(m Mechanism, password string) bool {
	other, err := NewCredential(m, password, c.Salt, c.Iterations)
	return err == nil && subtle.ConstantTimeCompare(other.StoredKey, c.StoredKey) == 1
}

func (c Credential) validate(m Mechanism) error {
	h := m.hash()
	if h == nil {
		return &MechanismError{m}
	}
	if c.Iterations < MinIterations || c.Iterations > MaxIterations {
		return &IterationsError{c.Iterations}
	}
	if n := h().Size(); len(c.StoredKey) != n || len(c.ServerKey) != n || len(c.Salt) == 0 || len(c.Salt) > 1024 {
		return fmt.Errorf("its credential for %s is incomplete", m)
	}
	return nil
}

// MechanismError: there is no such mechanism.
type MechanismError struct{ Mechanism Mechanism }

func (e *MechanismError) Error() string {
	return fmt.Sprintf("metadata: there is no mechanism %q; there are %s and %s", e.Mechanism, ScramSHA256, ScramSHA512)
}

// IterationsError: a password is to be hashed too often, or not often enough.
type IterationsError struct{ Iterations int }

func (e *IterationsError) Error() string {
	return fmt.Sprintf("metadata: %d iterations; they must be from %d to %d", e.Iterations, MinIterations, MaxIterations)
}

// MaxUserName is the longest name of a user, in bytes.
const MaxUserName = 249

// UserRecord is a user with the credentials by which it proves itself, or, where there are
// none, one that was deleted.
type UserRecord struct {
	Name        string                   `json:"name"`
	Credentials map[Mechanism]Credential `json:"credentials,omitempty"`
}

func (r *UserRecord) validate() error {
	if r.Name == "" || len(r.Name) > MaxUserName {
		return fmt.Errorf("a user's name has %d bytes; it must have 1 to %d", len(r.Name), MaxUserName)
	}
	for m, c := range r.Credentials {
		if err := c.validate(m); err != nil {
			return err
		}
	}
	return nil
}

// Users returns the names of those who have a credential, sorted.
func (i *Image) Users() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(i.users)) {
		if len(i.users[name].Credentials) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// User returns a user's credentials, none where there is no such user. They must not be changed.
func (i *Image) User(name string) map[Mechanism]Credential {
	if r := i.users[name]; r != nil {
		return r.Credentials
	}
	return nil
}
