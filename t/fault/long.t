# Backends that need four times the lease, by the clock: retries under way, and a graceful restart in the middle, in each
# mode, event and prefork, side by side.
use strict;
use warnings;
use Idem::Orders;
use Idem::Test;

my @MODES = qw(external transactional repeatable);
my %MPM = (
    event => "ServerLimit 4\nStartServers 1\nThreadsPerChild 10\nMaxRequestWorkers 40\nMinSpareThreads 1\nMaxSpareThreads 40\n",
    prefork => "ServerLimit 20\nStartServers 8\nMinSpareServers 1\nMaxSpareServers 20\nMaxRequestWorkers 20\n",
);
my $body = '{"amount":10}';
my ($pg, $orders, %t, @all);
for my $mpm (qw(event prefork)) {
    my $t = $t{$mpm} = Idem::Test->new(pg => $pg, mpm => $mpm, mpm_config => $MPM{$mpm}, start => 0);
    $pg = $t->pg;
    my $own = Idem::Orders->new($t);
    $orders //= $own;
    $t->httpd->{config} = $t->expand($own->load . "IdempotencyLease 2s\n" . join '', map { $orders->place("/$_", $_) } @MODES);
    $t->httpd->start;
}
sub begin {
    my ($mpm, $mode, $seconds, $name) = @_;
    my $key = fresh_key();
    my $c = $t{$mpm}->client;
    return { mpm => $mpm, name => "$mpm, $mode, $name", place => "/$mode", key => $key, seconds => $seconds, tag => "$mpm-$mode-$name", c => $c,
        connection => $c->send(POST => "/$mode", key => $key, body => $body, headers => [ 'X-Hold' => "before $mpm-$mode-$name" ]) };
}
sub retry { my ($op) = @_; return $op->{c}->post($op->{place}, key => $op->{key}, body => $body) }

push @all, begin('event', 'external', 7, 'plain');
for my $mpm (qw(event prefork)) {
    push @all, begin($mpm, $_, 8, 'graceful') for @MODES;
}
ok(wait_for(sub { !grep { !$orders->reached($_->{tag}) } @all }, 20), 'all are at work');
# by the store's clock, since the youngest of them began
my $since = $pg->value('SELECT max(owned_at) FROM idempotency_records');
sub at { my ($seconds) = @_; return wait_for(sub { $pg->value("SELECT now() >= '$since'::timestamptz + interval '$seconds s'") eq 't' }, 20) }

at(1);
$_->httpd->graceful for values %t;
for my $seconds (3, 6) {
    at($seconds);
    subtest "after $seconds s" => sub { problem(retry($_), 'in-progress', operation => 1) for @all };
}
at(7);
$orders->go(map { $_->{tag} } grep { $_->{seconds} == 7 } @all);
problem(retry($_), 'in-progress', operation => 1) for grep { $_->{seconds} == 8 } @all;
at(8);
$orders->go(map { $_->{tag} } @all);
for my $op (@all) {
    subtest $op->{name} => sub {
        my $first = $op->{connection}->response;
        is($first->status, 201, 'it comes to its end');
        is_replay(retry($op), $first, 'the retry');
        is($orders->count($first->operation), 1, 'one effect');
        is($first->json->{generation}, 1, 'of the first owner');
    };
}
# children of before the restart may still be on their way out
$_->httpd->allow_log(qr/AH00045/) for values %t;
$t{prefork}->finish(more => 1);
$t{event}->finish;
