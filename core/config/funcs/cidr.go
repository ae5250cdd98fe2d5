// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"fmt"
	"math/big"
	"net"
	"net/netip"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

func number(name string) function.Parameter { return function.Parameter{Name: name, Type: cty.Number} }

var cidrHostFunc = function.New(&function.Spec{
	Description: "Gives the address of a host in a network; negative numbers count from the end.",
	Params:      []function.Parameter{text("prefix"), number("hostnum")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		p, err := prefix(args[0])
		if err != nil {
			return cty.NilVal, err
		}
		n, err := whole(args[1], 1)
		if err != nil {
			return cty.NilVal, err
		}
		size := new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))
		if n.Sign() < 0 {
			n.Add(n, size)
		}
		if n.Sign() < 0 || n.Cmp(size) >= 0 {
			return cty.NilVal, function.NewArgErrorf(1, "the network has %s addresses only", size)
		}
		a, err := offset(p.Addr(), n)
		if err != nil {
			return cty.NilVal, err
		}
		return cty.StringVal(a.String()), nil
	},
})

var cidrNetmaskFunc = function.New(&function.Spec{
	Description: "Gives the netmask of an IPv4 network.",
	Params:      []function.Parameter{text("prefix")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		p, err := prefix(args[0])
		if err != nil {
			return cty.NilVal, err
		}
		if !p.Addr().Is4() {
			return cty.NilVal, function.NewArgErrorf(0, "IPv6 networks have no netmask")
		}
		return cty.StringVal(net.IP(net.CIDRMask(p.Bits(), 32)).String()), nil
	},
})

var cidrSubnetFunc = function.New(&function.Spec{
	Description: "Gives a network inside another, with a longer prefix.",
	Params:      []function.Parameter{text("prefix"), number("newbits"), number("netnum")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		p, err := prefix(args[0])
		if err != nil {
			return cty.NilVal, err
		}
		more, err := whole(args[1], 1)
		if err != nil {
			return cty.NilVal, err
		}
		room := p.Addr().BitLen() - p.Bits()
		if more.Sign() < 0 || more.Cmp(big.NewInt(int64(room))) > 0 {
			return cty.NilVal, function.NewArgErrorf(1, "the prefix has room for %d more bits", room)
		}
		bits := int(more.Int64())
		n, err := whole(args[2], 2)
		if err != nil {
			return cty.NilVal, err
		}
		if n.Sign() < 0 || n.BitLen() > bits {
			return cty.NilVal, function.NewArgErrorf(2, "does not fit into %d bits", bits)
		}
		n.Lsh(n, uint(room-bits))
		a, err := offset(p.Addr(), n)
		if err != nil {
			return cty.NilVal, err
		}
		return cty.StringVal(netip.PrefixFrom(a, p.Bits()+bits).String()), nil
	},
})

func prefix(v cty.Value) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v.AsString())
	if err != nil {
		return netip.Prefix{}, function.NewArgErrorf(0, "%q is not a network such as 10.0.0.0/8", v.AsString())
	}
	return p.Masked(), nil
}

func whole(v cty.Value, arg int) (*big.Int, error) {
	n, exact := v.AsBigFloat().Int(nil)
	if n == nil || exact != big.Exact {
		return nil, function.NewArgErrorf(arg, "must be a whole number")
	}
	return n, nil
}

func offset(a netip.Addr, n *big.Int) (netip.Addr, error) {
	sum := new(big.Int).SetBytes(a.AsSlice())
	sum.Add(sum, n)
	b := make([]byte, a.BitLen()/8)
	if sum.BitLen() > a.BitLen() {
		return netip.Addr{}, fmt.Errorf("the address is too large")
	}
	out, _ := netip.AddrFromSlice(sum.FillBytes(b))
	return out, nil
}
