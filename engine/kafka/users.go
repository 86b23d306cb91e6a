package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/metadata"
	"logbook/engine/service"
)

// mechanismNumbers are what KIP-554 calls the mechanisms.
var mechanismNumbers = map[int8]metadata.Mechanism{1: metadata.ScramSHA256, 2: metadata.ScramSHA512}

func numberOf(m metadata.Mechanism) int8 {
	for n, other := range mechanismNumbers {
		if other == m {
			return n
		}
	}
	return 0
}

// describeUsers lists users and how their passwords are kept (KIP-554): neither salts nor keys.
func (c *conn) describeUsers(q *kmsg.DescribeUserSCRAMCredentialsRequest) *kmsg.DescribeUserSCRAMCredentialsResponse {
	r := q.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	image := c.f.svc.Image()
	names, asked := image.Users(), len(q.Users) > 0
	if asked {
		names = nil
		for _, u := range q.Users {
			names = append(names, u.Name)
		}
	}
	for i, name := range names {
		x := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		x.User = name
		kept := image.User(name)
		switch {
		case slices.Contains(names[:i], name) || slices.Contains(names[i+1:], name):
			x.ErrorCode, x.ErrorMessage = kerr.DuplicateResource.Code, kmsg.StringPtr("the user is asked for twice")
		case len(kept) == 0:
			x.ErrorCode, x.ErrorMessage = kerr.ResourceNotFound.Code, kmsg.StringPtr("there is no such user")
		default:
			for _, m := range metadata.Mechanisms {
				if credential, ok := kept[m]; ok {
					info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
					info.Mechanism, info.Iterations = numberOf(m), int32(credential.Iterations)
					x.CredentialInfos = append(x.CredentialInfos, info)
				}
			}
		}
		r.Results = append(r.Results, x)
	}
	return r
}

// describeQuotas says that there are none: tools that describe a user ask for both.
func (c *conn) describeQuotas(q *kmsg.DescribeClientQuotasRequest) *kmsg.DescribeClientQuotasResponse {
	r := q.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	r.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	return r
}

// alterUsers gives users passwords, which come hashed, and takes them away (KIP-554).
func (c *conn) alterUsers(q *kmsg.AlterUserSCRAMCredentialsRequest) *kmsg.AlterUserSCRAMCredentialsResponse {
	r := q.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	changes := map[string]map[metadata.Mechanism]*metadata.Credential{}
	failed := map[string]*kerr.Error{}
	var names []string
	note := func(name string, mechanism int8, credential *metadata.Credential, err *kerr.Error) {
		if !slices.Contains(names, name) {
			names, changes[name] = append(names, name), map[metadata.Mechanism]*metadata.Credential{}
		}
		m, known := mechanismNumbers[mechanism]
		_, twice := changes[name][m]
		switch {
		case name == "":
			err = kerr.UnacceptableCredential
		case !known:
			err = kerr.UnsupportedSaslMechanism
		case twice:
			err = kerr.DuplicateResource
		}
		if err != nil && failed[name] == nil {
			failed[name] = err
		}
		changes[name][m] = credential
	}
	for _, d := range q.Deletions {
		note(d.Name, d.Mechanism, nil, nil)
	}
	for _, u := range q.Upsertions {
		credential, err := metadata.SaltedCredential(mechanismNumbers[u.Mechanism], u.SaltedPassword, u.Salt, int(u.Iterations))
		if err != nil {
			note(u.Name, u.Mechanism, &credential, kerr.UnacceptableCredential)
			continue
		}
		note(u.Name, u.Mechanism, &credential, nil)
	}
	for _, name := range names {
		x := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		x.User = name
		if ke := failed[name]; ke != nil {
			x.ErrorCode, x.ErrorMessage = ke.Code, kmsg.StringPtr(ke.Description)
			r.Results = append(r.Results, x)
			continue
		}
		err := await(func(done func(error)) {
			c.f.svc.ChangeUser(service.UserChange{Name: name, Credentials: changes[name]}, done)
		})
		if err != nil {
			x.ErrorCode, x.ErrorMessage = number(err), kmsg.StringPtr(err.Error())
		}
		r.Results = append(r.Results, x)
	}
	return r
}
