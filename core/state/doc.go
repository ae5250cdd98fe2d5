// SPDX-License-Identifier: Apache-2.0

// Package state is the store of what outlives a process of berth: the sessions, that is the sandboxes that were made and
// are not yet known to be gone; the conversations that runs go on with; the runs, as far as others than the machine that has
// their log must know them; and the calls that people are asked about, with their answers. It keeps records and knows
// nothing of drivers, sandboxes or projects; it holds no secret of its own, and what must not be changed by others it holds
// sealed, see core/state/seal.
//
// One interface, [Store], has two backends: a SQLite file for one machine, shared by any number of berth processes, and
// PostgreSQL for a team. Both run the same statements; [dialect] has the few differences. Times come from the database's
// clock, so that machines whose clocks differ agree about leases.
//
// # Leases
//
// Who drives a session holds its lease: a random token, who that is, and until when. It is renewed while the session is
// driven. Taking a lease raises the record's version, so that whoever had it before cannot write any more.
//
// # To add a table
//
//   - migrations/NNNN_name.up.sql makes it and NNNN_name.down.sql undoes exactly that; NNNN is the next number. Write what
//     SQLite and PostgreSQL both take: TEXT, BIGINT, {blob} for bytes, times as BIGINT in milliseconds (0 = none).
//   - A file of its own has its type, an interface with its methods, which [Store] embeds, and the methods on [db].
//     Statements have ? for values and {now} for the time; they go through db.exec, db.query and db.tx.
//   - Its tests go over both backends with eachStore. TestMigrations needs no change.
//
// A migration that was released is never changed. A store whose schema is newer than this program is refused untouched.
package state
