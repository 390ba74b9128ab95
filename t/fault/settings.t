# What a role, a database or a server has set must not change what the module promises: isolation, time zone,
# synchronous_commit; where it would (fsync, another schema, no rights) the registry is refused with a reason. Least
# privilege, and passwords that nobody sees.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $routes = protected({ by => 'proxy' }, '/proxy', 'proxy') . protected({ by => 'proxy' }, '/short', 'short', 'IdempotencyRetention 1s');
my $t = Idem::Test->new(backends => ['proxy'], config => $routes, pg_arg => { settings => { wal_writer_delay => '10s' } });
my $second = Idem::Test->new(mpm => 'prefork', pg => $t->pg, backends => ['proxy'], config => sub {
    return "IdempotencyStorePrepare Off\n" . $routes =~ s/\@PROXY\@/$t->backend->url/gre;
});
my @both = map { $_->client->with(authority => 'shop.example') } $t, $second;
my $c = $both[0];
my $body = '{"amount":10}';

sub post { my ($key, $client, $path) = @_; return ($client // $c)->post($path // '/proxy', key => $key, body => $body) }

sub works {
    my ($name, @clients) = @_;
    my ($key, $first) = (fresh_key());
    ran($t, 1, $name, sub {
        ok(wait_for(sub { $first = post($key, $clients[0]); $first->status != 503 }, 15), "$name: answers");
        is($first->status, 200, "$name: runs") or diag($first->body);
        for my $client (@clients ? @clients : $c) {
            my $again;
            # the other child may not know yet that the registry is back
            wait_for(sub { $again = post($key, $client); $again->status != 503 }, 10);
            is_replay($again, $first, $name);
        }
    });
}

sub new_connections {
    $t->pg->do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'web%'");
}

subtest 'C058 SERIALIZABLE as the default of the role, two servers' => sub {
    $t->pg->do('ALTER ROLE web SET default_transaction_isolation = serializable');
    new_connections();
    works('afterwards', @both);
    for my $round (1 .. 3) {
        my $key = fresh_key();
        my @res;
        ran($t, 1, 'one key, forty at once', sub {
            my @running = map { $both[ $_ % 2 ]->send(POST => '/proxy', key => $key, body => $body) } 1 .. 40;
            @res = map { $_->response } @running;
        });
        is((grep { $_->status != 200 && $_->status != 409 } @res), 0, 'the answer, or in-progress');
        is($t->record_count("idem_key = '$key'"), 1, 'one row');
    }
    my @res;
    ran($t, 60, 'sixty keys at once', sub {
        my @running = map { $both[ $_ % 2 ]->send(POST => '/proxy', key => fresh_key(), body => $body) } 1 .. 60;
        @res = map { $_->response } @running;
    });
    is((grep { $_->status != 200 } @res), 0, 'all of them run');
    $t->pg->do('ALTER ROLE web RESET default_transaction_isolation');
};

subtest 'C085 time zones' => sub {
    $t->pg->do("ALTER DATABASE postgres SET timezone = 'Asia/Kathmandu'");
    for my $role ('Pacific/Kiritimati', 'America/Anchorage') {
        for my $tz ('Pacific/Kiritimati', 'America/Anchorage') {
            $t->pg->do("ALTER ROLE web SET timezone = '$role'");
            $t->httpd->stop;
            $t->httpd->{env} = { TZ => $tz };
            $t->httpd->start;
            my ($live, $dead, $answer) = (fresh_key(), fresh_key());
            my $first = post($live);
            is($first->status, 200, "role in $role, httpd in $tz: runs");
            is(post($dead, $c, '/short')->status, 200, 'the short one too');
            ok(wait_for(sub { $answer = post($dead, $c, '/short'); $answer->status == 410 }, 10), 'which dies in time');
            problem($answer, 'key-expired');
            my $settled = $t->pg->value("SET timezone = 'UTC'; SELECT to_char(settled_at, 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM idempotency_records WHERE idem_key = '$dead'");
            is($answer->json->{settled}, $settled, 'and says when it was settled, in UTC');
            is_replay(post($live), $first, 'the other lives');
        }
    }
    $t->pg->do('ALTER ROLE web RESET timezone; ALTER DATABASE postgres RESET timezone');
};

subtest 'what was accepted outlasts a crash, whatever the role says of commits' => sub {
    $t->pg->do('ALTER ROLE web SET synchronous_commit = off; ALTER DATABASE postgres SET synchronous_commit = off');
    for my $client (@both) {
        new_connections();
        works('before', $client);
        my ($key, $first) = (fresh_key());
        $first = post($key, $client);
        $t->pg->kill9;
        is($first->status, 200, 'accepted, and the database server dies');
        unlink $t->pg->data . '/postmaster.pid';
        $t->pg->start;
        ran($t, 0, 'the same again', sub {
            my $res;
            ok(wait_for(sub { $res = post($key, $client); $res->status != 503 }, 15), 'it is back');
            is_replay($res, $first, 'nothing was lost');
        });
    }
    $t->pg->do('ALTER ROLE web RESET synchronous_commit; ALTER DATABASE postgres RESET synchronous_commit');
};

# Refused for this reason, with one line a child, until it is put right.
sub refused {
    my ($name, $like, $wrong, $right) = @_;
    subtest $name => sub {
        my $before = () = $t->httpd->log =~ /IDEM0902/g;
        $wrong->();
        new_connections();
        ran($t, 0, $name, sub {
            my $res;
            ok(wait_for(sub { $res = post(fresh_key()); $res->status == 503 }, 10), 'refused');
            problem($res, 'store-unavailable');
            is((grep { post(fresh_key())->status != 503 } 1 .. 20), 0, 'and again');
        });
        my @lines = grep { /IDEM0902/ } split /\n/, $t->httpd->log;
        splice @lines, 0, $before;
        cmp_ok(scalar(grep { /$like/ } @lines), '>=', 1, 'the log says why') or diag(explain(\@lines));
        my %child;
        $child{ /\[pid (\d+)/ ? $1 : '' }++ for grep { /$like/ } @lines;
        is((grep { $_ > 1 } values %child), 0, 'once for each child') or diag(explain(\@lines));
        $right->();
        new_connections();
        works('put right');
    };
}

refused('fsync off', qr/fsync off/, sub { $t->pg->do('ALTER SYSTEM SET fsync = off'); $t->pg->do('SELECT pg_reload_conf()') },
    sub { $t->pg->do('ALTER SYSTEM RESET fsync'); $t->pg->do('SELECT pg_reload_conf()') });
my $version = $t->pg->value('SELECT schema_version FROM idempotency_control');
refused('a newer schema', qr/schema version 9999.*newer build/, sub { $t->pg->do('UPDATE idempotency_control SET schema_version = 9999') },
    sub { $t->pg->do("UPDATE idempotency_control SET schema_version = $version") });
refused('no rights', qr/grant idempotency_writer/, sub { $t->pg->do('REVOKE idempotency_writer FROM web') }, sub { $t->pg->do('GRANT idempotency_writer TO web') });
refused('not migrated', qr/idempotencyctl migrate/, sub { $t->pg->do("ALTER ROLE web SET search_path = nowhere") }, sub { $t->pg->do('ALTER ROLE web RESET search_path') });

subtest 'the web server may do no more than it needs' => sub {
    for my $sql ('DROP TABLE idempotency_records', 'TRUNCATE idempotency_records', 'UPDATE idempotency_control SET writer_epoch = 7',
        'UPDATE idempotency_events SET actor = NULL', 'ALTER TABLE idempotency_records DROP outcome',
        'INSERT INTO idempotency_aliases DEFAULT VALUES', 'CREATE TABLE more (n int)', 'CREATE ROLE more', 'GRANT idempotency_admin TO web') {
        ok(!eval { $t->pg->do($sql, user => 'web'); 1 }, $sql);
    }
};

subtest 'migrate --no-roles --schema, as an owner who may make neither roles nor databases' => sub {
    $t->pg->do('CREATE ROLE webhost LOGIN; GRANT CONNECT ON DATABASE postgres TO webhost');
    $t->pg->do('CREATE DATABASE hosted OWNER webhost');
    my $store = sprintf 'postgresql://webhost@127.0.0.1:%d/hosted', $t->pg->port;
    my ($status, $said) = run(cmd => [ $t->{ctl}, '--store', $store, 'migrate', '--no-roles', '--schema', 'idem' ]);
    is($status, 0, 'migrated') or diag($said);
    ($status, $said) = run(cmd => [ $t->{ctl}, '--store', $store, 'migrate', '--no-roles', '--schema', 'idem' ]);
    is($status, 0, 'and again') or diag($said);
    $t->httpd->stop;
    local $t->httpd->{dbd} = $t->httpd->dbd_text($t->pg, 'webhost') =~ s/dbname=postgres/dbname=hosted options='-c search_path=idem'/r;
    $t->httpd->start;
    works('hosted');
    like($t->pg->value("SELECT current_database()"), qr/postgres/, 'the other registry');
    ($status, $said) = run(cmd => [ "$t->{pg}{bin}/psql", '-XAtq', $store, '-c', 'SELECT count(*) FROM idem.idempotency_records' ]);
    is($said, "1\n", 'is not the one that has the record');
    $t->httpd->stop;
};

subtest 'passwords, and none' => sub {
    my $secret = 'pw-3f9c7a-' . $$;
    $t->pg->do("CREATE ROLE websecret LOGIN PASSWORD '$secret' IN ROLE idempotency_writer");
    spew($t->pg->data . '/pg_hba.conf', "host all websecret 127.0.0.1/32 scram-sha-256\n" . slurp($t->pg->data . '/pg_hba.conf'), 0600);
    my $me = getpwuid($> || (getpwnam('mod-idempotency'))[2]); # whom the servers run as
    $t->pg->do(qq(CREATE ROLE webpeer LOGIN IN ROLE idempotency_writer; CREATE ROLE "$me" LOGIN IN ROLE idempotency_writer));
    spew($t->pg->data . '/pg_hba.conf', qq(local all webpeer peer map=servers\nlocal all "$me" peer\n) . slurp($t->pg->data . '/pg_hba.conf'), 0600);
    spew($t->pg->data . '/pg_ident.conf', "servers $me webpeer\n", 0600);
    $t->pg->do('SELECT pg_reload_conf()');
    my $folder = $t->root;
    spew("$folder/pgpass", "127.0.0.1:*:*:websecret:$secret\n", 0600);
    spew("$folder/pg_service.conf", sprintf("[registry]\nhost=127.0.0.1\nport=%d\ndbname=postgres\nuser=websecret\nconnect_timeout=2\npassfile=%s\n", $t->pg->port, "$folder/pgpass"), 0644);
    my $dbd = $t->httpd->dbd_text($t->pg, 'websecret');
    my %way = (
        'peer, by a map' => [ $t->httpd->dbd_text($t->pg, 'webpeer'), {}, 'webpeer' ],
        'peer, by the account\'s own name' => [ $t->httpd->dbd_text($t->pg, $me), {}, $me ],
        'a password file' => [ $dbd =~ s/host=\S+/host=127.0.0.1 passfile=$folder\/pgpass/r, {} ],
        'a service file' => [ $dbd =~ s/DBDParams.*/DBDParams "service=registry"/r, { PGSERVICEFILE => "$folder/pg_service.conf" } ],
    );
    for my $name (sort keys %way) {
        local $t->httpd->{dbd} = $way{$name}[0];
        local $t->httpd->{env} = $way{$name}[1];
        $t->httpd->start;
        works($name);
        is($t->pg->value("SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = '@{[ $way{$name}[2] // 'websecret' ]}'"), 't', 'as that user');
        # command lines are what ps shows, process titles of PostgreSQL's too
        my @seen = grep { index(eval { slurp("/proc/$_/cmdline") } // '', $secret) >= 0 || index(eval { slurp("/proc/$_/environ") } // '', $secret) >= 0 }
            grep { /^\d+$/ } map { m{/proc/(.*)} } glob '/proc/[0-9]*';
        is_deeply(\@seen, [], 'in no command line, process title or environment');
        $t->httpd->stop;
    }
    spew($t->pg->data . '/pg_ident.conf', "servers somebody-else webpeer\n", 0600);
    $t->pg->do('SELECT pg_reload_conf()');
    {
        local $t->httpd->{dbd} = $way{'peer, by a map'}[0];
        $t->httpd->start;
        problem(post(fresh_key()), 'store-unavailable');
        like($t->httpd->log, qr/IDEM0902.*Peer authentication failed/i, 'who is not in the map is refused, and the log says so');
        $t->httpd->stop;
    }
    spew("$folder/pgpass", "127.0.0.1:*:*:websecret:wrong-$secret\n", 0600);
    local $t->httpd->{dbd} = $way{'a password file'}[0];
    $t->httpd->start;
    problem(post(fresh_key()), 'store-unavailable', secrets => [$secret]);
    is(index($t->httpd->log . slurp($t->root . '/logs/access.log'), $secret), -1, 'in no log');
    like($t->httpd->log, qr/IDEM0902.*password authentication failed/, 'but the log says what is wrong');
    my ($status, $said) = run(cmd => [ $t->{ctl}, 'status' ], env => { PGSERVICE => 'registry', PGSERVICEFILE => "$folder/pg_service.conf" });
    isnt($status, 0, 'the tool is refused with it');
    is(index($said, $secret), -1, 'and does not show it');
    spew("$folder/pgpass", "127.0.0.1:*:*:websecret:$secret\n", 0600);
    works('the right one is taken up without a restart');
    is(index($t->pg->log, $secret), -1, "not in the database's log");
};

unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $second;
$_->httpd->allow_log(qr/dbd:|IDEM0902|IDEM0904|IDEM1003|IDEM0806|IDEM0401|AH00161|AH00484|AH10159/) for $t, $second;
$t->allow_pg_log(qr/terminating connection|permission denied|must be (?:owner|superuser|member)|(?:password|[Pp]eer) authentication failed|provided user name|no match in usermap|does not exist|could not serialize|unexpected EOF|database system|server process|connection to client lost|must have admin option|null value|Unterminated/i);
$second->finish(more => 1);
$t->finish;
