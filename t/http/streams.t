# Streams and sizes: what is too long to be kept goes through as it comes, settled before its first octet leaves, in
# memory that does not grow with it; and a child gives back what many large bodies took.
use strict;
use warnings;
use Idem::App;
use Idem::Test;
use Time::HiRes 'time';

use constant MIB => 1024 * 1024;
my $t = Idem::Test->new(backends => [qw(cgi proxy)], mpm_config => <<'MPM', config => sub {
ServerLimit 1
StartServers 1
ThreadsPerChild 25
ThreadLimit 25
MaxRequestWorkers 25
MPM
    my ($t) = @_;
    my $root = $t->root;
    # N MiB as fast as they go
    $t->backend->script('big.cgi', <<'PERL');
1 while read STDIN, my $body, 65_536;
Idem::App::note($root, event => 'effect', key => $ENV{HTTP_IDEMPOTENCY_KEY});
my ($mib) = ($ENV{QUERY_STRING} // '') =~ /^(\d+)$/;
print "Content-Type: application/octet-stream\n\n";
my $piece = Idem::App::pattern(65_536);
print $piece for 1 .. 16 * $mib;
PERL
    return join '', "ScriptAlias \"/big\" \"$root/app/cgi/big.cgi\"\n", protected({ by => 'none' }, '/big', 'big'),
        "ProxyPass \"/via\" \"http://127.0.0.1:$t->{httpd}{port}/inner\"\nScriptAlias \"/inner\" \"$root/app/cgi/big.cgi\"\n", protected({ by => 'none' }, '/via', 'via'),
        protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy'),
        protected('/raw', 'raw', 'IdempotencyMaxBody 128M'), protected('/json', 'json', 'IdempotencyFingerprint json');
});
my $c = $t->client;

sub status_of { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }

# Resident memory of the one child, in KiB: now, and the most since the last mark.
my ($child) = $t->httpd->children;
sub memory { my ($what) = @_; return (slurp("/proc/$child/status") =~ /^$what:\s+(\d+) kB/m)[0] }
sub mark { spew("/proc/$child/clear_refs", '5') if $> == 0; return memory('VmRSS') }

sub download {
    my ($target, $key) = @_;
    my ($status, $said) = run(timeout => 60, cmd => [ 'curl', '-sS', '-u', 'a:a', '-o', '/dev/null', '-w', '%{http_code} %{size_download} %{time_starttransfer}',
        '-X', 'POST', '-H', "Idempotency-Key: \"$key\"", '-d', '{}', 'http://localhost:' . $t->httpd->port . $target ]);
    return split ' ', $said;
}

subtest 'C109 events' => sub {
    for my $at ('/cgi', '/proxy') {
        my $key = fresh_key();
        $t->backend->behave(type => 'text/event-stream', body => "data: one\n\ndata: two\n\ndata: end\n\n", pieces => 3, stop => 2);
        ran($t, 1, $at, sub {
            my $begun = time;
            my $on = $c->send(POST => $at, key => $key, body => '{}');
            ok(wait_for(sub { $on->more(time + 5) if !$on->silent(0); $on->{buffer} =~ /data: one/ }), "$at: the first event comes");
            cmp_ok(time - $begun, '<', 1, "$at: within a second");
            is(status_of($key)->{status}, 'SUCCEEDED', "$at: settled, while the stream goes on");
            is(status_of($key)->{response_body}, undef, "$at: without a body");
            my $meanwhile = $c->post($at, key => $key, body => '{}');
            problem($meanwhile, 'response-not-stored', operation => 1);
            $t->backend->release;
            like($on->response->body, qr/data: end/, "$at: the stream comes to its end");
            $t->backend->behave;
            problem($c->post($at, key => $key, body => '{}'), 'response-not-stored', operation => 1);
        });
    }
};

subtest 'C109 a download of 200 MiB' => sub {
    $c->post('/big?1', key => fresh_key(), body => '{}');
    for my $at ('/big', '/via') {
        my $key = fresh_key();
        ran($t, 1, $at, sub {
            my $before = mark();
            my ($status, $size, $first) = download("$at?200", $key);
            is("$status $size", '200 ' . 200 * MIB, "$at: all of it");
            cmp_ok($first, '<', 1, "$at: the first octet within a second");
            my $grown = memory('VmHWM') - $before;
            cmp_ok($grown, '<', 12 * 1024, "$at: memory is flat (grown by at most $grown KiB)");
            my $row = status_of($key);
            is($row->{status}, 'SUCCEEDED', "$at: settled");
            is($row->{response_body}, undef, "$at: without a body");
            problem($c->post("$at?200", key => $key, body => '{}', type => 'application/x-www-form-urlencoded'), 'response-not-stored', operation => 1);
        });
    }
};

# In httpd's own configuration, where each thread would keep 2 MiB of what it has used.
subtest 'twenty bodies and responses at once' => sub {
    my $file = spew($t->root . '/body', Idem::App::pattern(8 * MIB), 0644);
    my $go = sub {
        my ($mib, @keys) = @_;
        my ($status, $said) = run(timeout => 120, cmd => [ 'curl', '--no-progress-meter', '-Z', '--parallel-max', '20', '-u', 'a:a', map { ($_ ? '--next' : (), '-sS', '-u', 'a:a', '-o', '/dev/null', '-w', '%{http_code} %{size_download}\n',
            '-H', "Idempotency-Key: \"$keys[$_]\"", '-H', 'Expect:', '--data-binary', "\@$file", 'http://127.0.0.1:' . $t->httpd->port . "/big?$mib") } 0 .. 19 ]);
        return is_deeply([ sort grep { /^200 / } split /[\r\n]+/, $said =~ s/.*(?=200 \d)//gr ], [ ("200 " . $mib * MIB) x 20 ], "$mib MiB: all of it, in and out");
    };
    my $keys = sub { return map { fresh_key() } 1 .. 20 };
    my ($before, $first) = mark();
    # what a request holds at most: IdempotencyBodyMemory, and as much of a response as may be kept
    my $holds = 20 * (256 + 1024);
    # a connection to the registry keeps the room of the largest statement and the largest row it has had, until it has been
    # idle for a minute; libpq doubles that room until it is enough: 2 MiB for 1 MiB and a little
    my $connections = sub { return 2 * 2048 * $t->pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'web'") };
    my $bounded = sub {
        my ($name, $runs, $mib, @keys) = @_;
        my $may = 10 * 1024;
        ran($t, $runs, $name, sub { $go->($mib, @keys) });
        my $most = memory('VmHWM') - $before;
        $may += $connections->() if $mib == 1;
        cmp_ok($most, '<', 16 * 1024 + $holds + $may - 10 * 1024, "$name: resident memory grew by at most $most KiB, of which $holds may be held");
        my $after;
        ok(wait_for(sub { $after = memory('VmRSS'); $after - $before < $may }, 5), "$name: and comes back to " . ($after - $before) . ' KiB more than before');
        return $after;
    };
    $first = $bounded->('passed on', 20, 8, $keys->());
    my $again = $bounded->('once more', 20, 8, $keys->());
    cmp_ok($again - $first, '<', 4 * 1024, 'once more takes no more: ' . ($again - $first) . ' KiB');
    my @keys = $keys->();
    $bounded->('kept', 20, 1, @keys);
    $bounded->('replayed', 0, 1, @keys);
};

# What each mode keeps of a body while it reads it is stated in src/core: nothing for raw, a list of its values for json.
subtest 'one body of 64 MiB raw, and one of 8 MiB as JSON' => sub {
    my %body = (raw => spew($t->root . '/raw.body', Idem::App::pattern(64 * MIB), 0644),
        json => spew($t->root . '/json.body', '[' . join(',', map { qq({"id":$_,"name":"@{[ 'a name of some length ' x 4 ]}","tags":["x","y"]}) } 1 .. 62_000) . ']', 0644));
    for my $case ([ raw => 'application/octet-stream', 8 * 1024 ], [ json => 'application/json', 48 * 1024 ]) {
        my ($mode, $type, $bound) = @$case;
        my $before = mark();
        my @sent = ('curl', '-sS', '-u', 'a:a', '-o', '/dev/null', '-w', '%{http_code}', '-H', 'Idempotency-Key: "' . fresh_key() . '"', '-H', 'Expect:',
            '-H', "Content-Type: $type", '--data-binary', "\@$body{$mode}", 'http://localhost:' . $t->httpd->port . "/$mode");
        ran($t, 1, "$mode and its retry", sub { is((run(timeout => 120, cmd => \@sent))[1], 200, "$mode: answered") for 1 .. 2 });
        my $grown = memory('VmHWM') - $before;
        my $left = memory('VmRSS') - $before;
        cmp_ok($left, '<', 6 * 1024, "$mode: of which $left KiB are still there");
        cmp_ok($grown, '<', $bound, "$mode: resident memory grew by at most $grown KiB for " . int((-s $body{$mode}) / 1024) . ' KiB');
    }
};

$t->httpd->allow_log(qr/AH10159/);
$t->finish;
