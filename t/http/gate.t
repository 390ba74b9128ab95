# The acceptance gate (make gate), a small one.
use strict;
use warnings;
use Idem::Util;
use Test::More;

my ($status, $said) = run(cmd => [ $^X, '-I' . source_dir() . '/t/lib', source_dir() . '/t/bench/gate' ], self => 1,
    env => { REQUESTS => 600, PACE => 0, IDEM_OUT => out_dir() }, dir => source_dir(), timeout => 120);
is($status, 0, 'passed') or diag($said);
like($said, qr/^duplicate effects +0 +goal 0 +holds$/m, 'no duplicate effect');
like($said, qr/^false conflicts +0 +goal 0 +holds$/m, 'no false conflict');
like($said, qr/^replay digest equality +100\.000 % +goal 100 % +holds$/m, 'every replay is the answer');
like($said, qr/^UNKNOWN past the objective +0\.0000 % +goal below 0\.01 % +holds$/m, 'nothing in doubt');
like($said, qr/^reserve P99 of the budget +[\d.]+ % +goal at most 5 %/m, 'and how much of the budget a reserve takes');
note($said);
done_testing;
