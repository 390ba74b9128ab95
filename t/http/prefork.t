# Under prefork: mod_cgi and mod_php, whose endings are other than those of mod_cgid and FPM. A child that dies with its
# script takes the connection along; its record tells the retry so once the lease is over.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(mpm => 'prefork', backends => [qw(cgi php)], config => sub {
    my ($t) = @_;
    $t->backend->script('nph-x.cgi', '1 while read STDIN, my $b, 65536; Idem::App::note($root, event => "effect", key => "nph"); print "HTTP/1.0 201 Made\r\nContent-Type: text/plain\r\n\r\nraw\n";');
    $t->backend->script('sorry.cgi', 'print "Status: 200\nContent-Type: text/plain\n\nsorry\n";');
    return join '', protected('/cgi', 'cgi'), protected('/cgi_doc', 'cgi.doc', 'ErrorDocument 500 /sorry'), "ScriptAlias \"/sorry\" \"$t->{root}/app/cgi/sorry.cgi\"\n",
        protected({ by => 'php' }, '/php', 'php', 'IdempotencyLease 1s'),
        "ScriptAlias \"/nph\" \"$t->{root}/app/cgi/nph-x.cgi\"\n", protected({ by => 'none' }, '/nph', 'nph');
});
my $c = $t->client;

sub state { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0]{status} // 'no record' }

sub unknown {
    my ($name, $target, %behave) = @_;
    my $key = fresh_key();
    my $first;
    $t->backend->behave(%behave);
    ran($t, 1, $name, sub {
        $first = $c->post($target, key => $key, body => '{}');
        $t->backend->behave;
        my $again;
        ok(wait_for(sub { $again = $c->post($target, key => $key, body => '{}'); ($again->json->{type} // '') =~ /outcome-unknown/ }), "$name: a retry is told");
        problem($again, 'outcome-unknown', operation => 1);
        is(state($key), 'UNKNOWN', "$name: UNKNOWN");
    });
    return $first;
}

my %thousand = (size => 1000, length => 1000);
subtest "mod_cgi, $_" => sub { my $first = unknown("killed, $_", '/cgi', %thousand, die => $_); cmp_ok($first->status, '>=', 500, 'no success') } for qw(before headers body);
subtest 'mod_cgi behind an ErrorDocument that says 200' => sub { is(unknown('exit', '/cgi_doc', exit => 1)->status, 200, 'as the page says') };
subtest 'mod_cgi, nph-' => sub { unknown('nph', '/nph') };
subtest "mod_php, $_" => sub { is(unknown("the child dies, $_", '/php/x', %thousand, die => $_), undef, 'the connection breaks') } for qw(before body);
subtest 'mod_php answers' => sub {
    for my $status (200, 404, 500) {
        my $key = fresh_key();
        $t->backend->behave(status => $status);
        ran($t, 1, $status, sub {
            my ($first, $again) = map { $c->post('/php/x', key => $key, body => '{}') } 1 .. 2;
            is($first->status, $status, "$status: the first client sees it");
            $status == 500 ? problem($again, 'outcome-unknown') : is_replay($again, $first, $status);
        });
        $t->backend->behave;
    }
};
$t->httpd->expect_log(qr/IDEM0701/, qr/IDEM0509/, qr/IDEM0401/);
$t->httpd->allow_log(qr/exit signal Killed|End of script output|Premature end|AH01215|IDEM/);
$t->finish;
