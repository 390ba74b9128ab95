# A key that somebody else has used is as good as a new one: no answer of its own, no statement of its own, no time of its
# own, by which one caller could learn of another's keys.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $t = Idem::Test->new(backends => ['lua'], pg_arg => { settings => { shared_preload_libraries => 'pg_stat_statements' } },
    config => "MaxKeepAliveRequests 0\n" . protected({ by => 'lua' }, '/charges', 'charges.create'));
$t->pg->do('CREATE EXTENSION pg_stat_statements');
my $body = '{"amount":10}';
my %connection;
sub ask {
    my ($user, $key) = @_;
    my $on = $connection{$user} //= $t->client->connect;
    return $t->client->post('/charges', key => $key, body => $body, user => $user, keep => 1, on => $on);
}
sub median { my @s = sort { $a <=> $b } @_; return ($s[ $#s / 2 ] + $s[ @s / 2 ]) / 2 }
sub class { my ($res) = @_; return join ' ', $res->status, sort map { lc $_->[0] } @{ $res->{fields} } }

my $pairs = 200;
ask('b', "used-$_") for 1 .. $pairs;
ask($_, 'warm-up') for qw(a b);
my (%took, %class);
my $timed = sub { my ($kind, $n) = @_; my $begun = time; my $res = ask('a', "$kind-$n"); push @{ $took{$kind} }, time - $begun; $class{$kind}{ class($res) }++; return $res };
ran($t, 2 * $pairs, 'every one of them', sub { for my $n (1 .. $pairs) { $timed->($_, $n) for $n % 2 ? qw(used unused) : qw(unused used) } });
is_deeply($class{used}, $class{unused}, 'status and fields are those of a key that nobody has used') or diag(explain(\%class));
is_deeply([ map { (split / /)[0] } keys %{ $class{used} } ], [200], 'no 409, no 422');
# generous: what is looked for is another way through the module or the store, not a microsecond
my $ratio = median(@{ $took{used} }) / median(@{ $took{unused} });
ok($ratio > 0.5 && $ratio < 2, sprintf 'as fast: %.2f ms and %.2f ms', map { 1000 * median(@{ $took{$_} }) } qw(used unused));

# The statements that a request causes, and how many rows each gave; what the child's thread does by itself left out.
sub statements {
    my ($code) = @_;
    $t->pg->do('SELECT pg_stat_statements_reset()');
    $code->();
    return { map { substr($_->{query}, 0, 200) => "$_->{calls} calls, $_->{rows} rows" }
        $t->pg->query("SELECT query, calls, rows FROM pg_stat_statements WHERE query ~ 'idempotency_records' AND query !~ 'alone AS|pg_stat'") };
}
ask('b', "more-$_") for 1 .. 20;
my $used = statements(sub { ask('a', "more-$_") for 1 .. 20 });
my $unused = statements(sub { ask('a', "fresh-$_") for 1 .. 20 });
is_deeply($used, $unused, 'and the same statements');
is_deeply([ sort values %$used ], [ '20 calls, 20 rows', '20 calls, 20 rows' ], 'one to reserve and one to settle') or diag(explain($used));
$t->finish;
