# PgBouncer in transaction mode, with fewer server connections than there are httpd children.
use strict;
use warnings;
use Idem::Load;
use Idem::Pooler;
use Idem::Test;

sub settings {
    my ($server) = @_;
    mkdir $server->root . '/journal', 0700;
    give($server->root . '/journal');
    return "IdempotencyStorePrepare Off\nIdempotencyStoreTimeout 2s\nIdempotencyJournal \"@{[ $server->root ]}/journal\"\n"
        . protected({ by => 'proxy' }, '/proxy', 'proxy');
}

my $t = Idem::Test->new(start => 0, backends => ['proxy'], config => \&settings);
my $second = Idem::Test->new(start => 0, mpm => 'prefork', pg => $t->pg, backends => ['proxy'], config => sub { settings($_[0]) =~ s/\@PROXY\@/$t->backend->url/gre });
my $pooler = Idem::Pooler->new($t->pg, size => 2);
for my $server ($t, $second) {
    $server->httpd->{pg} = $pooler;
    $server->httpd->start;
}
my @both = map { $_->client->with(authority => 'shop.example') } $t, $second;
my $body = '{"amount":10}';

subtest '500 requests' => sub {
    my (@keys, @first);
    ran($t, 500, 'fresh keys', sub {
        for my $round (1 .. 25) {
            my @now = map { fresh_key() } 1 .. 20;
            my $i = 0;
            my @running = map { $both[ $i++ % 2 ]->send(POST => '/proxy', key => $_, body => $body) } @now;
            push @first, map { $_->response } @running;
            push @keys, @now;
        }
    });
    is((grep { $_->status != 200 } @first), 0, 'all of them run');
    is($t->record_count("status = 'SUCCEEDED'"), 500, 'all of them are on record');
    ran($t, 0, 'some of them again', sub {
        for my $n (map { $_ * 25 } 0 .. 19) {
            my $res = $both[ $n % 2 ]->post('/proxy', key => $keys[$n], body => $body);
            is($res->operation . $res->body, $first[$n]->operation . $first[$n]->body, 'a replay');
        }
    });
    cmp_ok($t->pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'web'"), '<=', 2, 'over two connections');
};

subtest 'nothing is left on the server connections' => sub {
    my $through = sub {
        my ($status, $said) = run(cmd => [ "$t->{pg}{bin}/psql", '-XAtq', $pooler->conninfo(user => 'web'), '-c', $_[0] ]);
        return $said;
    };
    for (1 .. 4) {
        is($through->('SELECT count(*) FROM pg_prepared_statements'), "0\n", 'no prepared statement');
        is($through->("SELECT current_setting('statement_timeout') || current_setting('plan_cache_mode') || current_setting('enable_seqscan')"), "0autoon\n", 'no setting');
    }
};

subtest 'the pooler and the server behind it restart under load' => sub {
    my $load = Idem::Load->start($t, clients => \@both);
    ok($load->wait_for_more(200, 10), 'requests are served');
    $pooler->stop;
    ok($load->wait_for_more(503, 5), 'without it they are refused');
    $pooler->start;
    ok($load->wait_for_more(200, 10), 'served again');
    $t->pg->restart('immediate');
    ok($load->wait_for_more(200, 10), 'and again');
    $load->stop;
    $load->holds('restarts', journal => 1);
};

unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $second;
$_->httpd->allow_log(qr/dbd:|IDEM0902|IDEM0904|IDEM1003|IDEM0806|IDEM0401|AH00161|AH00484|AH10159/) for $t, $second;
$t->allow_pg_log(qr/terminating connection|database system|server process|could not|connection to client lost|unexpected EOF|not properly shut down|invalid record/);
$second->finish(more => 1);
$t->finish;
