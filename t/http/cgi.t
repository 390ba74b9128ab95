# What CGI scripts do of which httpd sees less than it seems: the documentation promises no more than this, and no less.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(config => sub {
    my ($t) = @_;
    my $root = $t->root;
    mkdir "$root/scripts";
    give("$root/scripts");
    my %script = (
        'nph-direct' => 'print "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\ndone\n";',
        # announces ten octets, gives five, and is gone
        'half'       => '$| = 1; print "Content-Type: text/plain\r\nContent-Length: 10\r\n\r\nhalf\n"; kill KILL => $$;',
        'deaf'       => 'print "Content-Type: text/plain\r\n\r\ndone\n";',
        'cut'        => '$| = 1; print "Content-Type: text/plain\r\n\r\nhalf\n"; kill KILL => $$;',
    );
    for my $name (keys %script) {
        spew("$root/scripts/$name", "#!/usr/bin/perl\n" . ($name eq 'deaf' ? '' : '1 while <STDIN>;') . "\nopen my \$log, '>>', '$root/runs' or die; print \$log \"$name\\n\"; close \$log;\n$script{$name}\n", 0755);
    }
    spew("$root/runs", '', 0666);
    return "ScriptAlias \"/scripts\" \"$root/scripts\"\n"
        . protected({ by => 'none' }, '/scripts', 'auto', 'IdempotencyKey Optional');
});
my $c = $t->client;

sub runs { my ($name) = @_; return scalar grep { $_ eq $name } split /\n/, slurp($t->root . '/runs') }
sub state { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0]{status} }

subtest 'an nph- script: not run twice, not replayed' => sub {
    my $first = $c->post('/scripts/nph-direct', key => 'nph', body => '{}');
    is($first->status, 201, 'the first client has its answer');
    ok(wait_for(sub { state('nph') eq 'UNKNOWN' }), 'nobody saw the answer: UNKNOWN');
    problem($c->post('/scripts/nph-direct', key => 'nph', body => '{}'), 'outcome-unknown');
    is(runs('nph-direct'), 1, 'it ran once');
    $t->httpd->expect_log(qr/IDEM0509/);
};

subtest 'a CGI script that is killed in the middle looks complete' => sub {
    $c->post('/scripts/cut', key => 'cut', body => '{}');
    my $again = $c->post('/scripts/cut', key => 'cut', body => '{}');
    is($again->body, "half\n", 'its half is replayed');
    is(runs('cut'), 1, 'it ran once');
};

subtest 'unless it announced its length' => sub {
    my $first = $c->post('/scripts/half', key => 'half', body => '{}');
    isnt($first->status, 200, 'the first client is told');
    is(state('half'), 'UNKNOWN', 'UNKNOWN');
    problem($c->post('/scripts/half', key => 'half', body => '{}'), 'outcome-unknown');
    is(runs('half'), 1, 'it ran once');
    $t->httpd->expect_log(qr/shorter than announced/);
};

subtest 'a script that does not read its request' => sub {
    for my $size (1, 5000) {
        my $first = $c->post('/scripts/deaf', key => "deaf-$size", body => 'x' x $size);
        is($first->status, 200, 'the first client has its answer');
        is($first->body, "done\n", 'all of it');
        is_replay($c->post('/scripts/deaf', key => "deaf-$size", body => 'x' x $size), $first, "$size octets unread");
    }
    is(runs('deaf'), 2, 'each ran once');
    $t->httpd->allow_log(qr/AH02651/);
};

subtest 'no key where it is optional' => sub {
    $c->post('/scripts/cut', body => '{}') for 1 .. 2;
    is(runs('cut'), 3, 'ran twice more');
};

$t->finish;
