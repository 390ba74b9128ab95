# The acceptance gate (make gate), a small one.
use strict;
use warnings;
use Idem::Util;
use Test::More;

my ($status, $said) = run(cmd => [ $^X, '-I' . source_dir() . '/t/lib', source_dir() . '/t/bench/gate' ], self => 1,
    env => { REQUESTS => 600, IDEM_OUT => out_dir() }, dir => source_dir(), timeout => 120);
is($status, 0, 'passed') or diag($said);
like($said, qr/^duplicate effects +0$/m, 'no duplicate effect');
like($said, qr/^false conflicts +0$/m, 'no false conflict');
like($said, qr/^replay digest equality +100\.000 %$/m, 'every replay is the answer');
note($said);
done_testing;
