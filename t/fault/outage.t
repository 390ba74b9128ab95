# PostgreSQL is stopped, killed, frozen and restarted while two httpd, event and prefork, work on it.
use strict;
use warnings;
use Idem::Load;
use Idem::Test;
use Time::HiRes qw(time);

sub settings {
    my ($server) = @_;
    mkdir $server->root . '/journal', 0700;
    give($server->root . '/journal');
    return "IdempotencyStoreTimeout 1s\nIdempotencyJournal \"@{[ $server->root ]}/journal\"\n" . protected({ by => 'proxy' }, '/proxy', 'proxy');
}

my $t = Idem::Test->new(backends => ['proxy'], config => \&settings);
my $second = Idem::Test->new(mpm => 'prefork', pg => $t->pg, backends => ['proxy'], config => sub {
    return settings($_[0]) =~ s/\@PROXY\@/$t->backend->url/gre;
});
my @clients = map { $_->client->with(authority => 'shop.example') } $t, $second;
my @children = map { [ $_->httpd->children ] } $t, $second;

sub under_load {
    my ($name, $fault, %arg) = @_;
    subtest $name => sub {
        my $load = Idem::Load->start($t, clients => \@clients);
        ok($load->wait_for_more(200, 10), 'requests are served');
        $fault->($load);
        ok($load->wait_for_more(200, 10), 'they are served again');
        $load->stop;
        $load->holds($name, %arg);
    };
}

under_load('immediate shutdown and restart', sub {
    my ($load) = @_;
    $t->pg->stop('immediate');
    ok($load->wait_for_more(503, 10), 'while it is away they are refused');
    $t->pg->start;
}, journal => 1);

under_load('killed, twice', sub {
    for (1 .. 2) {
        $t->pg->kill9;
        unlink $t->pg->data . '/postmaster.pid';
        $t->pg->start;
    }
}, journal => 1);

# No worker is still waiting for what was lost.
sub workers_are_free {
    for my $client (@clients) {
        ok(wait_for(sub { !grep { $_->status != 200 } $client->parallel(map { [ POST => '/proxy', key => fresh_key(), body => '{}' ] } 1 .. 20) }, 15), 'twenty at once are served');
    }
}

under_load('C078 all backends are frozen', sub {
    my ($load) = @_;
    my @frozen = $t->pg->query("SELECT pid FROM pg_stat_activity WHERE usename = 'web'");
    cmp_ok(scalar @frozen, '>', 0, 'there are some');
    kill STOP => map { $_->{pid} } @frozen;
    # one may hold a lock that all need, so that nobody is served
    ok($load->wait_for_more('200|503', 10), 'everybody is told something');
    kill CONT => map { $_->{pid} } @frozen;
    workers_are_free();
}, journal => 1);

under_load('C078 the whole cluster is frozen', sub {
    my ($load) = @_;
    $t->pg->sigstop;
    ok($load->wait_for_more(503, 10), 'while it is frozen they are refused');
    my ($seconds) = (time);
    is($clients[0]->post('/proxy', key => fresh_key(), body => '{}')->status, 503, 'refused');
    cmp_ok(time - $seconds, '<', 3, 'in time');
    $t->pg->cont;
    workers_are_free();
}, journal => 1);

under_load('connections are ended by an administrator', sub {
    $t->pg->do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'web'") for 1 .. 2;
}, journal => 1);

is_deeply([ map { [ $_->httpd->children ] } $t ], [ $children[0] ], 'no child of the event server has ended');
my %now = map { $_ => 1 } $second->httpd->children;
is_deeply([ grep { !$now{$_} } @{ $children[1] } ], [], 'none of the prefork server that was there at first') if !grep { /MaxConnectionsPerChild/ } $second->httpd->log;
unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $second;
my @said = (qr/IDEM0902|IDEM0904|IDEM1003|IDEM0806|IDEM0805|IDEM0401/, qr/dbd:/, qr/AH00161|AH00484|AH10159/);
$_->httpd->allow_log(@said) for $t, $second;
$t->allow_pg_log(qr/terminating connection|connection to client lost|the database system|server process|background worker|could not receive data|unexpected EOF|was not properly shut down|canceling statement|invalid record length/);
$second->finish(more => 1);
$t->finish;
