package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"logbook/engine/kafka"
)

// Users are made and described by Kafka's own requests, prove themselves by each mechanism, and
// are there after a restart.
func TestUsersProveThemselves(t *testing.T) {
	const token = "the brokers' own token"
	b := start(t, func(c *kafka.Config) { c.Token = token })
	admin := kadm.NewClient(b.client(kgo.SASL(plain("root", token))))
	results, err := admin.AlterUserSCRAMs(soon(t), nil, []kadm.UpsertSCRAM{
		{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "wonderland"},
		{User: "alice", Mechanism: kadm.ScramSha512, Iterations: 8192, Password: "wonderland"},
		{User: "bob", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "builder"},
	})
	require.NoError(t, err)
	assert.NoError(t, results["alice"].Err)
	assert.NoError(t, results["bob"].Err)

	// What is no credential is refused by its own number, and nothing is kept of it.
	q := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for _, u := range []struct {
		name       string
		mechanism  int8
		iterations int32
		salted     int
	}{{"eve", 2, 5, 64}, {"short", 2, 4096, 0}, {"strange", 9, 4096, 64}, {"", 2, 4096, 64}, {"twice", 2, 4096, 64}, {"twice", 2, 4096, 64}} {
		x := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		x.Name, x.Mechanism, x.Iterations, x.Salt, x.SaltedPassword = u.name, u.mechanism, u.iterations, []byte("salt"), make([]byte, u.salted)
		q.Upsertions = append(q.Upsertions, x)
	}
	reply, err := b.client(kgo.SASL(plain("root", token))).Request(soon(t), q)
	require.NoError(t, err)
	codes := map[string]error{}
	for _, r := range reply.(*kmsg.AlterUserSCRAMCredentialsResponse).Results {
		codes[r.User] = kerr.ErrorForCode(r.ErrorCode)
	}
	assert.Equal(t, map[string]error{
		"eve": kerr.UnacceptableCredential, "short": kerr.UnacceptableCredential, "strange": kerr.UnsupportedSaslMechanism,
		"": kerr.UnacceptableCredential, "twice": kerr.DuplicateResource,
	}, codes)

	described, err := admin.DescribeUserSCRAMs(soon(t))
	require.NoError(t, err)
	assert.Len(t, described, 2)
	assert.ElementsMatch(t, []kadm.CredInfo{{Mechanism: kadm.ScramSha256, Iterations: 4096}, {Mechanism: kadm.ScramSha512, Iterations: 8192}}, described["alice"].CredInfos)
	_, err = admin.DescribeUserSCRAMs(soon(t), "nobody")
	require.NoError(t, err)

	b.restart()
	try := func(m sasl.Mechanism) error {
		c := b.client(kgo.SASL(m), kgo.RequestRetries(0))
		_, err := c.Request(soon(t), kmsg.NewPtrMetadataRequest())
		return err
	}
	for name, c := range map[string]struct {
		how  sasl.Mechanism
		good bool
	}{
		"sha256":               {scram.Auth{User: "alice", Pass: "wonderland"}.AsSha256Mechanism(), true},
		"sha512":               {scram.Auth{User: "alice", Pass: "wonderland"}.AsSha512Mechanism(), true},
		"plain":                {plain("alice", "wonderland"), true},
		"token":                {plain("whoever", token), true},
		"bob":                  {scram.Auth{User: "bob", Pass: "builder"}.AsSha512Mechanism(), true},
		"bob's other":          {scram.Auth{User: "bob", Pass: "builder"}.AsSha256Mechanism(), false},
		"a wrong password":     {scram.Auth{User: "alice", Pass: "x"}.AsSha512Mechanism(), false},
		"plain, wrong":         {plain("alice", "x"), false},
		"another's password":   {plain("alice", "builder"), false},
		"nobody":               {scram.Auth{User: "nobody", Pass: "x"}.AsSha256Mechanism(), false},
		"a name with a comma":  {scram.Auth{User: "a,b=c", Pass: "x"}.AsSha256Mechanism(), false},
		"the token by scram":   {scram.Auth{User: "whoever", Pass: token}.AsSha256Mechanism(), false},
		"a refused credential": {plain("eve", "too easy"), false},
	} {
		err := try(c.how)
		if c.good {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, kerr.SaslAuthenticationFailed, name)
		}
	}

	admin = kadm.NewClient(b.client(kgo.SASL(scram.Auth{User: "bob", Pass: "builder"}.AsSha512Mechanism())))
	results, err = admin.AlterUserSCRAMs(soon(t), []kadm.DeleteSCRAM{{User: "alice", Mechanism: kadm.ScramSha256}, {User: "nobody", Mechanism: kadm.ScramSha512}}, nil)
	require.NoError(t, err)
	assert.NoError(t, results["alice"].Err)
	assert.ErrorIs(t, results["nobody"].Err, kerr.ResourceNotFound)
	assert.NoError(t, try(scram.Auth{User: "alice", Pass: "wonderland"}.AsSha512Mechanism()))
	assert.ErrorIs(t, try(scram.Auth{User: "alice", Pass: "wonderland"}.AsSha256Mechanism()), kerr.SaslAuthenticationFailed)
}

// Without a token, users are asked for where the setting says so.
func TestAuthenticateWithoutAToken(t *testing.T) {
	b := start(t, nil)
	admin := kadm.NewClient(b.client())
	_, err := admin.AlterUserSCRAMs(soon(t), nil, []kadm.UpsertSCRAM{{User: "alice", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "wonderland"}})
	require.NoError(t, err)
	// Whoever says that they are somebody must be, even where nobody is asked.
	c := b.client(kgo.SASL(plain("alice", "x")), kgo.RequestRetries(0))
	_, err = c.Request(soon(t), kmsg.NewPtrMetadataRequest())
	assert.ErrorIs(t, err, kerr.SaslAuthenticationFailed)

	b.edit = func(c *kafka.Config) { c.Authenticate = true }
	b.restart()
	_, err = b.client(kgo.RequestRetries(0)).Request(soon(t), kmsg.NewPtrMetadataRequest())
	assert.Error(t, err)
	_, err = b.client(kgo.SASL(plain("anybody", "x")), kgo.RequestRetries(0)).Request(soon(t), kmsg.NewPtrMetadataRequest())
	assert.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
	_, err = b.client(kgo.SASL(scram.Auth{User: "alice", Pass: "wonderland"}.AsSha512Mechanism())).Request(soon(t), kmsg.NewPtrMetadataRequest())
	assert.NoError(t, err)
}
