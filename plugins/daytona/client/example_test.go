// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"os"

	"github.com/berth-dev/berth/plugins/daytona/client"
)

// A sandbox is made, runs a command, and is removed.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{Token: os.Getenv("DAYTONA_API_KEY")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	s, err := c.Create(ctx, &client.Create{Name: "example", AutoStop: new(5)})
	if err == nil {
		s, err = c.Await(ctx, s.ID, nil)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Delete(ctx, s.ID)
	box, err := c.Toolbox(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := box.Execute(ctx, client.Execution{Command: "uname -s </dev/null"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(out.Result)
}
