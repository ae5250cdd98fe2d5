// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/berth-dev/berth/sdk/errs"
)

const (
	magic     = "berth1\n"
	nonceSize = 32
	// exchangeTimeout bounds a peer that connects and says nothing.
	exchangeTimeout = 5 * time.Second
	// writeBuffer is asked of the kernel, which gives less: each time that a writer has to wait costs two switches.
	writeBuffer = 1 << 20
)

// Driver is the credential of the side that listens.
func Driver(key Key) credentials.TransportCredentials { return credential{key} }

// Core is the credential of the side that connects.
func Core(key Key) credentials.TransportCredentials { return credential{key} }

type credential struct{ key Key }

// ClientHandshake is the core's side.
func (c credential) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.shake(ctx, conn, func() error {
		hello := make([]byte, len(magic)+nonceSize)
		nonce := hello[copy(hello, magic):]
		rand.Read(nonce) // crypto/rand.Read never fails: it ends the program instead
		if _, err := conn.Write(hello); err != nil {
			return err
		}
		var answer [nonceSize + sha256.Size]byte
		if _, err := io.ReadFull(conn, answer[:]); err != nil {
			return err
		}
		if !hmac.Equal(answer[nonceSize:], c.proof("driver", nonce, answer[:nonceSize])) {
			return errs.New(errs.AuthFailed, "the driver does not hold this process's key")
		}
		_, err := conn.Write(c.proof("core", nonce, answer[:nonceSize]))
		return err
	})
}

// ServerHandshake is the driver's side.
func (c credential) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.shake(context.Background(), conn, func() error {
		var hello [len(magic) + nonceSize]byte
		if _, err := io.ReadFull(conn, hello[:]); err != nil {
			return err
		}
		if string(hello[:len(magic)]) != magic {
			return errs.New(errs.AuthFailed, "the client does not speak berth's handshake")
		}
		answer := make([]byte, nonceSize, nonceSize+sha256.Size)
		rand.Read(answer) // crypto/rand.Read never fails: it ends the program instead
		proof := c.proof("driver", hello[len(magic):], answer)
		want := c.proof("core", hello[len(magic):], answer)
		if _, err := conn.Write(append(answer, proof...)); err != nil {
			return err
		}
		var got [sha256.Size]byte
		if _, err := io.ReadFull(conn, got[:]); err != nil {
			return err
		}
		if !hmac.Equal(got[:], want) {
			return errs.New(errs.AuthFailed, "the client does not hold this process's key")
		}
		return nil
	})
}

func (c credential) shake(ctx context.Context, conn net.Conn, exchange func() error) (net.Conn, credentials.AuthInfo, error) {
	fail := func(err error) (net.Conn, credentials.AuthInfo, error) {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
		// Nothing but this handshake closes a connection that it refused.
		conn.Close() // the handshake's own error is what matters
		return nil, nil, errs.Wrap(errs.AuthFailed, "driver handshake", err)
	}
	if u, ok := conn.(*net.UnixConn); ok {
		uid, err := peerUID(u)
		if err != nil {
			return fail(err)
		}
		if own := os.Geteuid(); uid != own {
			return fail(errs.New(errs.AuthFailed, "the peer is user %d, this process is user %d", uid, own))
		}
		_ = u.SetWriteBuffer(writeBuffer) // it stays as it was
	}
	if err := conn.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := exchange()
	if !stop() || err != nil {
		if err == nil {
			err = context.Cause(ctx)
		}
		return fail(err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return fail(err)
	}
	return conn, authInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

func (c credential) proof(side string, core, driver []byte) []byte {
	m := hmac.New(sha256.New, c.key[:])
	m.Write([]byte(side))
	m.Write(core)
	m.Write(driver)
	return m.Sum(nil)
}

// Info describes the credential to gRPC.
func (credential) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "berth"}
}

// Clone returns the credential: it has no state.
func (c credential) Clone() credentials.TransportCredentials { return c }

// OverrideServerName does nothing: there is no name.
func (credential) OverrideServerName(string) error { return nil }

type authInfo struct{ credentials.CommonAuthInfo }

// AuthType names the credential.
func (authInfo) AuthType() string { return "berth" }
