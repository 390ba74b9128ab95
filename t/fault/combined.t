# A child dies while one of its threads writes for many: nobody's operation is lost, and none runs twice, though a second
# server is asked for the same at the same time.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(start => 0, mpm => 'event', mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 24\nThreadLimit 24\nMaxRequestWorkers 24\nMinSpareThreads 1\nMaxSpareThreads 24\n",
    config => "IdempotencyStoreTimeout 20s\nIdempotencyStoreWriters 1\n" . protected('/charges', 'charges.create', 'IdempotencyEffect repeatable', 'IdempotencyLease 1s'));
my $twin = $t->twin;
# which server a statement is of
for my $server ([ first => $t ], [ second => $twin ]) {
    my ($name, $test) = @$server;
    $test->httpd->{dbd} = $test->httpd->dbd_text($t->pg, 'web') =~ s/connect_timeout=2/connect_timeout=2 application_name=$name/r;
    $test->httpd->start;
}
my ($client, $other) = map { $_->client->with(authority => 'shop.example') } $t, $twin;
my $both = $t->both;
my $waits = q(FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%idempotency_records%' AND query NOT LIKE 'LOCK%');
is($_->post('/charges', key => fresh_key(), body => '{}')->status, 200, 'the server is there') for $client, $other;

# who opens a further connection meanwhile waits for the same lock
$t->httpd->allow_log(qr/no further connection to the registry/, qr/had no answer/, qr/exit signal Killed/);
$t->allow_pg_log(qr/canceling statement due to lock timeout/, qr/could not (?:receive|send) data|unexpected EOF|connection to client lost/, qr/prepared statement "\w+" does not exist/);

my @keys = map { fresh_key() } 1 .. 14;
{
    # the writer waits for one transaction, and whoever then writes for the others for the next
    my ($one, $two) = ($t->pg->session, $t->pg->session);
    $one->run('BEGIN; LOCK idempotency_records IN SHARE ROW EXCLUSIVE MODE');
    my @running = $client->send(POST => '/charges', key => $keys[0], body => '{}');
    ok(wait_for(sub { $t->pg->value("SELECT count(*) $waits") >= 1 }, 15), 'one writes');
    push @running, map { $client->send(POST => '/charges', key => $_, body => '{}') } @keys[ 1 .. $#keys ];
    my @there = map { $other->send(POST => '/charges', key => $_, body => '{}') } @keys;
    ok(wait_for(sub { $t->pg->value("SELECT count(*) $waits AND application_name = 'second'") >= 1 }, 15), 'one of the other server, too');
    print { $two->{to} } "BEGIN; LOCK idempotency_records IN SHARE ROW EXCLUSIVE MODE;\n";
    ok(wait_for(sub { $t->pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'LOCK%')) == 1 }, 15), 'the second transaction stands behind it');
    $one->run('ROLLBACK');
    ok(wait_for(sub { $t->pg->value("SELECT count(*) $waits AND query LIKE '%unnest%' AND application_name = 'first'") >= 1 }, 30), 'many rows in one statement are under way');
    $t->httpd->kill_child;
    $two->close;
    # which has waited for the same locks, maybe for too long
    is((grep { $_->response->status !~ /^(?:200|409|503)$/ } @there), 0, 'the other server runs them, or they are in progress, or refused');
    for my $key (@keys) {
        # what the dead child had reserved is free again when its lease is over
        ok(wait_for(sub { my $r = eval { $both->post('/charges', key => $key, body => '{}') }; $r && $r->status == 200 }, 20), 'a retry is answered');
    }
}
my %ran;
$ran{ $_->{key} =~ s/"//gr }++ for $t->backend->effects;
my ($first, @others) = map { $ran{$_} // 0 } @keys;
is(join(',', @others), join(',', (1) x 13), 'each has run once');
ok($first == 1 || $first == 2, 'the one whose reserve was done may have been at work when the child died, and says it may be repeated');
is($t->record_count(q(status = 'SUCCEEDED')), 16, 'one record each, all final');
$t->finish;
