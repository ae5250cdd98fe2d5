// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/client"
)

// A sandbox is made with Modal's own SDK; why it ended, and an exec as one stream, are what this package adds.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{TokenID: os.Getenv("MODAL_TOKEN_ID"), TokenSecret: os.Getenv("MODAL_TOKEN_SECRET")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	app, err := c.Apps.FromName(ctx, "my-app", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		log.Fatal(err)
	}
	image := c.Images.FromRegistry("debian:bookworm-slim", nil)
	sb, err := c.Sandboxes.Create(client.With(ctx, client.Extra{DiskMiB: 1024}), app, image, &modal.SandboxCreateParams{Command: []string{"sleep", "infinity"}})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Terminate(ctx, nil)

	stream, err := client.Dial(ctx, sb, []string{"tr", "a-z", "A-Z"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(stream, "hello\n"); err != nil {
		log.Fatal(err)
	}
	stream.CloseWrite()
	out, _ := io.ReadAll(stream) // its error tells the exit code
	fmt.Printf("%s", out)

	st, err := client.StatusOf(ctx, sb)
	if err != nil {
		log.Fatal(err)
	}
	if st.Reason == client.IdleTimedOut {
		fmt.Println("it was idle")
	}
}
