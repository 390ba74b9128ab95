# The database server dies, and its synchronous standby takes over while two httpd are at work: no accepted key is lost,
# nothing happens a second time. A standby by itself is no registry until it is promoted.
use strict;
use warnings;
use Idem::Load;
use Idem::Test;

sub settings {
    my ($server) = @_;
    mkdir $server->root . '/journal', 0700;
    give($server->root . '/journal');
    return "IdempotencyStoreTimeout 2s\nIdempotencyJournal \"@{[ $server->root ]}/journal\"\n" . protected({ by => 'proxy' }, '/proxy', 'proxy');
}

my $t = Idem::Test->new(start => 0, backends => ['proxy'], config => \&settings);
my $primary = $t->pg;
my $standby = Idem::Postgres->new(standby_of => $primary);
$primary->do("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
$primary->do('SELECT pg_reload_conf()');
ok(wait_for(sub { $primary->value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1 }, 10), 'a synchronous standby');

my $dsn = sprintf 'host=127.0.0.1,127.0.0.1 port=%d,%d dbname=postgres user=web connect_timeout=2 target_session_attrs=read-write', $primary->port, $standby->port;
my $second = Idem::Test->new(mpm => 'prefork', start => 0, pg => $primary, backends => ['proxy'], config => sub { settings($_[0]) =~ s/\@PROXY\@/$t->backend->url/gre });
my $third = Idem::Test->new(start => 0, pg => $primary, backends => ['proxy'], config => sub { settings($_[0]) =~ s/\@PROXY\@/$t->backend->url/gre },
    mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 5\nMaxRequestWorkers 5\nMinSpareThreads 1\nMaxSpareThreads 5\n");
my $dbd = $t->httpd->dbd_text($primary, 'web');
$_->httpd->{dbd} = $dbd =~ s/DBDParams.*/DBDParams "$dsn"/r for $t, $second;
$second->httpd->{dbd} =~ s/DBDMax \d+/DBDMax 2/;
$third->httpd->{dbd} = $t->httpd->dbd_text($standby, 'web');
$_->httpd->start for $t, $second, $third;
my @both = map { $_->client->with(authority => 'shop.example') } $t, $second;

my $body = '{"amount":10}';
ran($t, 0, 'the standby alone', sub { problem($third->client->post('/proxy', key => fresh_key(), body => $body), 'store-unavailable') });
like($third->httpd->log, qr/IDEM0902.*the server is in recovery/, 'the log says why');

my $load = Idem::Load->start($t, clients => \@both, workers => 6);
# Those of these keys that a server has no record of; or none of a final state.
sub missing {
    my ($server, $where, @keys) = @_;
    my %there = map { $_->{idem_key} => 1 } $server->query("SELECT idem_key FROM idempotency_records WHERE $where");
    return grep { !$there{$_} } @keys;
}

ok($load->wait_for_more(200, 60), 'requests are served');
$primary->kill9;
ok($load->wait_for_more(503, 10), 'the server is dead, they are refused');
# what clients were told until then, every answer of theirs written down
my @accepted = $load->accepted;
cmp_ok(scalar @accepted, '>=', 60, @accepted . ' keys were accepted before the server died');
is_deeply([ missing($standby, 'true', @accepted) ], [], 'the standby has them, before it is promoted');
ok($standby->promote, 'the standby is promoted');
ok($load->wait_for_more(200, 60), 'they are served again, no httpd was restarted');
$load->stop;
my @all = $load->accepted;
cmp_ok(scalar @all, '>=', @accepted + 60, @all . ' in the end');
my @unsettled;
ok(wait_for(sub { !(@unsettled = missing($standby, "status = 'SUCCEEDED'", @all)) }, 20), 'every accepted key is on record, as succeeded') or diag("@unsettled");
my %ran;
$ran{ $_->{key} =~ s/"//gr }++ for $t->backend->effects;
is_deeply([ grep { ($ran{$_} // 0) != 1 } @all ], [], 'and has had one effect, by the backend\'s own book');
$load->holds('failover', journal => 1);

my ($key, $first) = (fresh_key());
ok(wait_for(sub { $first = $third->client->post('/proxy', key => $key, body => $body); $first->status == 200 }, 10), 'who had only the standby is served now');

unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $second;
for my $server ($t, $second, $third) {
    $server->httpd->allow_log(qr/dbd:|IDEM0902|IDEM0904|IDEM1003|IDEM0806|IDEM0401|AH00161|AH00484|AH10159/);
}
$t->allow_pg_log(qr/terminating|connection|could not|unexpected EOF/);
$_->finish(more => 1) for $third, $second;
$t->finish;
