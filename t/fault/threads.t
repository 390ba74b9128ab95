# The module's own thread beside those of requests, under the thread sanitizer of the compiler: connections come and go,
# the store goes away and comes back, requests meet on one key, children end gracefully. It has nothing to report. One
# httpd at a time: what is looked for is within one process.
use strict;
use warnings;
use File::Copy ();
use Idem::Test;

# A build of its own; only what has changed since the last one is compiled.
my $out = 'out-tsan';
my ($status, $said) = run(self => 1, timeout => 400, dir => source_dir(), env => { MAKEFLAGS => undef, MAKELEVEL => undef },
    cmd => [ 'make', '--no-print-directory', '-j2', 'CC=gcc', "OUT=$out", 'SANITIZE=thread', "$out/mod_idempotency.so" ]);
is($status, 0, 'the module is built with -fsanitize=thread') or BAIL_OUT($said);
my (undef, $library) = run(self => 1, cmd => [ 'gcc', '-print-file-name=libtsan.so' ]);
chomp $library;

my $pg;
for my $mpm (qw(prefork event)) {
    subtest $mpm => sub {
        my $t = Idem::Test->new(start => 0, mpm => $mpm, pg => $pg, backends => [qw(cgi proxy)], config =>
            # one writer, so that the writes of those that wait are combined
            "IdempotencyStoreWriters 1\n" . protected('/cgi', 'cgi', 'IdempotencyLease 2s') . protected({ by => 'proxy' }, '/proxy', 'proxy', 'IdempotencyMaxSnapshot 100K'));
        $pg = $t->pg;
        File::Copy::copy(source_dir() . "/$out/mod_idempotency.so", $t->root . '/mod_idempotency.so') or die "copy: $!\n";
        my $report = $t->root . '/logs/tsan';
        $t->httpd->{env} = { LD_PRELOAD => $library, TSAN_OPTIONS => "log_path=$report exitcode=0 report_signal_unsafe=0 history_size=4" };
        $t->httpd->start;
        my ($child) = $t->httpd->children;
        like(slurp("/proc/$child/maps"), qr/libtsan/, 'the sanitizer is at work');
        my $c = $t->client;
        my $load = sub {
            my $key = fresh_key();
            my @answers = $c->parallel((map { [ POST => $_ % 3 ? '/proxy' : '/proxy?size=300000', key => fresh_key(), body => '{}' ] } 1 .. 12),
                map { [ POST => '/proxy', key => $key, body => '{}' ] } 1 .. 4);
            return scalar grep { $_ && $_->status =~ /^(?:200|409|503)$/ } @answers;
        };
        is($load->(), 16, 'requests are answered') for 1 .. 4;
        $t->pg->restart;
        is($load->(), 16, 'while the store comes back, too');
        # to every child, and not only to the one that has looked first
        ok(wait_for(sub { !grep { $c->post('/cgi', key => fresh_key(), body => '{}')->status != 200 } 1 .. 12 }, 60), 'it is back');
        $t->backend->behave(hold => 1);
        my $before = () = $t->backend->effects;
        my $running = $c->send(POST => '/proxy', key => fresh_key(), body => '{}');
        ok(wait_for(sub { (() = $t->backend->effects) > $before }), 'one is running');
        $t->httpd->graceful;
        $t->backend->release;
        is($running->response->status, 200, 'and comes to its end across a graceful restart');
        $t->backend->behave;
        is($load->(), 16, 'with new children');
        $t->httpd->stop('WINCH');
        # httpd closes its listener in one thread while another takes it out of its epoll set: no frame of that is the module's
        my @reports = grep { /mod_idempotency/ } map { split /^(?==+\nWARNING: ThreadSanitizer)/m, slurp($_) } glob("$report*");
        is(join("\n", @reports), '', 'no report');
        $t->httpd->allow_log(qr/\[idempotency:/, qr/\[dbd:/, qr/AH\d+: .*(?:MaxRequestWorkers|dbd|DBD)/, qr/FATAL|server closed/);
        $t->allow_pg_log(qr/terminating|shutting down|starting up/);
        $t->finish(more => 1);
    };
}
done_testing();
