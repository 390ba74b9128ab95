# C076: the store is down. What is protected does not run; what is not runs as ever; nothing has to be restarted.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $t = Idem::Test->new(config => protected('/charges', 'charges.create') . protected('/optional', 'optional', 'IdempotencyKey Optional')
    . protected('/auto', 'auto') . qq(ScriptAlias "/free" "\@CGI\@"\n));
my $c = $t->client;
my $body = '{"amount":10}';

sub down {
    my ($name, $places, $within) = @_;
    ran($t, 0, "$name: keyed", sub {
        for my $place (@$places) {
            my $before = time;
            problem($c->post($place, key => fresh_key(), body => $body), 'store-unavailable', secrets => [ 'libpq', $t->pg->socket_dir, 'SQL' ]);
            cmp_ok(time - $before, '<', $within, "$name: $place is answered in time");
        }
    });
    ran($t, 3, "$name: unkeyed", sub {
        is($c->post($_, body => $body)->status, 200, "$name: $_ runs") for qw(/optional /auto /free);
    });
    problem($c->post('/charges', body => $body), 'key-missing');
    ran($t, 0, "$name: many at once", sub {
        my $before = time;
        my @res = $c->parallel(map { [ POST => '/charges', key => fresh_key(), body => $body ] } 1 .. 20);
        is((grep { $_->status != 503 } @res), 0, "$name: all are told");
        cmp_ok(time - $before, '<', $within + 2, "$name: in time");
    });
}

# Every child finds out by itself: twenty answers in a row, over new connections, come from both.
sub recovered {
    my ($seconds) = @_;
    return wait_for(sub { 20 == grep { $c->post('/charges', key => fresh_key(), body => $body)->status == 200 } 1 .. 20 }, $seconds);
}

my $key = fresh_key();
my $first = $c->post('/charges', key => $key, body => $body);
is($first->status, 200, 'runs while the store is there');

subtest 'PostgreSQL is stopped' => sub {
    $t->pg->stop('fast');
    down('stopped', [qw(/charges /optional /auto)], 4);
    $t->pg->start;
    ok(recovered(20), 'all children answer again by themselves');
    is_replay($c->post('/charges', key => $key, body => $body), $first, 'what was settled before is still there');
};

subtest 'a database restart between two requests' => sub {
    $t->pg->restart('fast');
    my @status = map { $c->post('/charges', key => fresh_key(), body => $body)->status } 1 .. 12;
    cmp_ok(scalar(grep { $_ != 200 } @status), '<=', 2, 'C080 at most one refusal a child') or diag("@status");
};

subtest 'C079 the server starts without its store' => sub {
    $t->httpd->stop;
    $t->pg->stop('fast');
    $t->httpd->start;
    down('not yet there', ['/charges'], 4);
    $t->pg->start;
    ok(recovered(20), 'it answers as soon as the store is there');
};

unlike($t->httpd->log, qr/exit signal/, 'no child has crashed');
# Every message about the store is the module's own, and says so.
$t->httpd->allow_log(qr/idempotency:(?:error|warn|crit).*(?:store|database|PostgreSQL|registry)/i, qr/dbd:/);
$t->allow_pg_log(qr/terminating connection due to administrator command|the database system is (?:shutting down|starting up)/);
$t->finish;
